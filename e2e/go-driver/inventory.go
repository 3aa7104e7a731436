package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

// The API server takes no more devices in one slice.
const maxDevices = 128

// inventorySlice is one slice of an inventory file, its fields as in a ResourceSlice's spec.
type inventorySlice struct {
	Devices        []resourceapi.Device     `json:"devices"`
	SharedCounters []resourceapi.CounterSet `json:"sharedCounters"`
}

// readInventory reads a JSON list of slices, the same file that mock-gpu-driver takes.
func readInventory(path string) ([]resourceslice.Slice, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var read []inventorySlice
	if err := decoder.Decode(&read); err != nil {
		return nil, fmt.Errorf("inventory %s: %w", path, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("inventory %s: more than one JSON value", path)
	}
	var slices []resourceslice.Slice
	for _, slice := range read {
		slices = append(slices, resourceslice.Slice{Devices: slice.Devices, SharedCounters: slice.SharedCounters})
	}
	return slices, nil
}

// madeUp gives a node count GPUs, the same at each start, in as few slices as there can be.
func madeUp(node string, count int) []resourceslice.Slice {
	var slices []resourceslice.Slice
	for index := 0; index < count; index++ {
		if index%maxDevices == 0 {
			slices = append(slices, resourceslice.Slice{})
		}
		last := &slices[len(slices)-1]
		last.Devices = append(last.Devices, gpu(node, index))
	}
	return slices
}

// revised gives all devices an attribute that tells which revision they are of; revision 0 is the slices as they are.
func revised(slices []resourceslice.Slice, revision int64) []resourceslice.Slice {
	if revision == 0 {
		return slices
	}
	var changed []resourceslice.Slice
	for _, slice := range slices {
		devices := make([]resourceapi.Device, 0, len(slice.Devices))
		for _, device := range slice.Devices {
			device = *device.DeepCopy()
			if device.Attributes == nil {
				device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
			}
			device.Attributes["revision"] = resourceapi.DeviceAttribute{IntValue: ptr.To(revision)}
			devices = append(devices, device)
		}
		slice.Devices = devices
		changed = append(changed, slice)
	}
	return changed
}

func gpu(node string, index int) resourceapi.Device {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, index))
	uuid := fmt.Sprintf("gpu-%x-%x-%x-%x-%x", digest[:4], digest[4:6], digest[6:8], digest[8:10], digest[10:16])
	return resourceapi.Device{
		Name: fmt.Sprintf("gpu-%d", index),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"index":         {IntValue: ptr.To(int64(index))},
			"uuid":          {StringValue: ptr.To(uuid)},
			"model":         {StringValue: ptr.To("LATEST-GPU-MODEL")},
			"driverVersion": {VersionValue: ptr.To("1.0.0")},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory":  {Value: resource.MustParse("80Gi")},
			"compute": {Value: resource.MustParse("100")},
		},
	}
}
