package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// checkpoint is the file that has all prepared claims. As is usual with drivers on the Go helper it is rewritten as a
// whole for each claim, and not synced.
type checkpoint struct{ path string }

func (c checkpoint) read() (map[types.UID][]kubeletplugin.Device, error) {
	prepared := map[types.UID][]kubeletplugin.Device{}
	content, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return prepared, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &prepared); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", c.path, err)
	}
	return prepared, nil
}

func (c checkpoint) write(prepared map[types.UID][]kubeletplugin.Device) error {
	content, err := json.Marshal(prepared)
	if err != nil {
		return err
	}
	temporary := c.path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, c.path)
}
