// Command allocator-oracle says what the scheduler's allocators make of claims on a node.
//
//	allocator-oracle < CASES
//
// Reads one case as JSON for each line and writes one answer for each. The next case may wait for the answer: each answer is
// written at once.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// testCase is what the scheduler knows, and claims of one pod.
type testCase struct {
	// Allocator is the implementation to ask: stable, incubating or experimental.
	Allocator string                       `json:"allocator"`
	Node      v1.Node                      `json:"node"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	// Held are claims that are allocated.
	Held   []*resourceapi.ResourceClaim `json:"held"`
	Claims []*resourceapi.ResourceClaim `json:"claims"`
}

// answer has Allocations, or Failed, or neither if the node has not the devices.
type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations,omitempty"`
	Failed      string                         `json:"failed,omitempty"`
	// OnNode says that other nodes are still tried.
	OnNode bool `json:"onNode,omitempty"`
}

// features by allocator: all that it knows, but derived attributes. That is what the scheduler asks for if it uses it.
var features = map[string]structured.Features{
	"stable": {AdminAccess: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true},
	"incubating": {
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
	},
	"experimental": {
		AdminAccess: true, CompatibilityGroups: true, ConsumableCapacity: true, DeviceBindingAndStatus: true,
		DeviceTaints: true, FractionalCapacityRange: true, ListTypeAttributes: true, OptionalNodeOperations: true,
		PartitionableDevices: true, PrioritizedList: true,
	},
}

type classLister []*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) { return l, nil }

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "allocator-oracle:", err)
		os.Exit(1)
	}
}

func run() error {
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c testCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("reading a case: %w", err)
		}
		answered, err := judge(c, cache)
		if err != nil {
			return err
		}
		if err := answers.Encode(answered); err != nil {
			return err
		}
	}
	return lines.Err()
}

func judge(c testCase, cache *cel.Cache) (answer, error) {
	wanted, known := features[c.Allocator]
	if !known {
		return answer{}, fmt.Errorf("no allocator %q", c.Allocator)
	}
	structured.EnableAllocators(c.Allocator)
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, wanted, allocated(c.Held), classLister(c.Classes), c.Slices, cache)
	if err != nil {
		return answer{}, err
	}
	allocations, err := allocator.Allocate(ctx, &c.Node, c.Claims)
	if err != nil {
		return answer{Failed: err.Error(), OnNode: errors.Is(err, structured.ErrFailedAllocationOnNode)}, nil
	}
	return answer{Allocations: allocations}, nil
}

// allocated is the state that the scheduler's plugin makes of allocated claims.
func allocated(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}
