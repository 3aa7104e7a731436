package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

const cdiClass = "claim"

// driver is what the helper calls.
type driver struct {
	name, node   string
	cdiRoot      string
	prepareDelay time.Duration
	// index has each device's place in the inventory.
	index map[string]int
	cdi   *cdi.Cache

	// onError is what to do about an error that the helper tells of, if anything.
	onError atomic.Pointer[onError]

	// Without the helper's serialization calls come at once.
	mutex      sync.Mutex
	checkpoint checkpoint
}

func newDriver(o options, slices []resourceslice.Slice, cache *cdi.Cache, file checkpoint) *driver {
	index := map[string]int{}
	for _, slice := range slices {
		for _, device := range slice.Devices {
			index[device.Name] = len(index)
		}
	}
	return &driver{
		name:         o.driverName,
		node:         o.nodeName,
		cdiRoot:      o.cdiRoot,
		prepareDelay: o.prepareDelay,
		index:        index,
		cdi:          cache,
		checkpoint:   file,
	}
}

func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		klog.InfoS("preparing", "claim", klog.KObj(claim), "uid", claim.UID)
		time.Sleep(d.prepareDelay)
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
		klog.InfoS("prepared", "claim", klog.KObj(claim), "uid", claim.UID, "devices", len(devices), "err", err)
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := d.unprepare(claim.UID)
		results[claim.UID] = err
		klog.InfoS("unprepared", "claim", claim.NamespacedName, "uid", claim.UID, "err", err)
	}
	return results, nil
}

func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	klog.ErrorS(err, msg)
	if todo := d.onError.Load(); todo != nil {
		todo.run()
	}
}

// onError publishes when a driver that had an error is about to stop: late enough for the helper to be stopping.
type onError struct {
	stopping context.Context
	publish  func() error
}

func (o *onError) run() {
	<-o.stopping.Done()
	time.Sleep(500 * time.Millisecond)
	klog.InfoS("publishing because of the error")
	err := o.publish()
	klog.InfoS("published because of the error", "err", err)
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	prepared, err := d.checkpoint.read()
	if err != nil {
		return nil, err
	}
	if devices := prepared[claim.UID]; len(devices) > 0 {
		return devices, nil
	}
	spec := &specs.Spec{Kind: d.kind()}
	var devices []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		index, ok := d.index[result.Device]
		if !ok {
			return nil, fmt.Errorf("this node has no GPU %s", result.Device)
		}
		name := fmt.Sprintf("%s-%s", claim.UID, result.Device)
		spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: d.edits(claim, result, index)})
		devices = append(devices, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{d.kind() + "=" + name},
		})
	}
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return nil, err
	}
	if err := d.begin(claim.UID, prepared); err != nil {
		return nil, err
	}
	if err := d.cdi.WriteSpec(spec, d.specName(claim.UID)); err != nil {
		return nil, err
	}
	if err := d.syncSpec(claim.UID); err != nil {
		return nil, err
	}
	prepared[claim.UID] = devices
	return devices, d.checkpoint.write(prepared)
}

func (d *driver) unprepare(claim types.UID) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	prepared, err := d.checkpoint.read()
	if err != nil {
		return err
	}
	if _, ok := prepared[claim]; !ok {
		return nil
	}
	if err := d.begin(claim, prepared); err != nil {
		return err
	}
	if err := d.cdi.RemoveSpec(d.specName(claim)); err != nil {
		return err
	}
	if d.checkpoint.durable {
		if err := makeDurable(d.cdiRoot); err != nil {
			return err
		}
	}
	delete(prepared, claim)
	return d.checkpoint.write(prepared)
}

// begin notes, if it has to be durable, that a claim is worked on: whatever crashes then, the claim is neither forgotten
// nor answered for.
func (d *driver) begin(claim types.UID, prepared map[types.UID][]kubeletplugin.Device) error {
	if !d.checkpoint.durable {
		return nil
	}
	prepared[claim] = nil
	return d.checkpoint.write(prepared)
}

// syncSpec makes the claim's CDI file durable if it has to be: the library does not.
func (d *driver) syncSpec(claim types.UID) error {
	if !d.checkpoint.durable {
		return nil
	}
	// The library gives a name without an extension this one.
	if err := makeDurable(filepath.Join(d.cdiRoot, d.specName(claim)+".yaml")); err != nil {
		return err
	}
	return makeDurable(d.cdiRoot)
}

// edits are those of mock-gpu-driver.
func (d *driver) edits(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, index int) specs.ContainerEdits {
	gpu := fmt.Sprintf("GPU_DEVICE_%d", index)
	admin := result.AdminAccess != nil && *result.AdminAccess
	return specs.ContainerEdits{Env: []string{
		"KUBERNETES_NODE_NAME=" + d.node,
		"DRA_RESOURCE_DRIVER_NAME=" + d.name,
		fmt.Sprintf("DRA_ADMIN_ACCESS=%t", admin),
		gpu + "=" + result.Device,
		fmt.Sprintf("GPU_DEVICE_%s_RESOURCE_CLAIM=%s", strings.ToUpper(strings.ReplaceAll(result.Device, "-", "_")), claim.UID),
		gpu + "_SHARING_STRATEGY=TimeSlicing",
		gpu + "_TIMESLICE_INTERVAL=Default",
	}}
}

func (d *driver) vendor() string { return "k8s." + d.name }

func (d *driver) kind() string { return d.vendor() + "/" + cdiClass }

func (d *driver) specName(claim types.UID) string {
	return cdi.GenerateTransientSpecName(d.vendor(), cdiClass, string(claim))
}
