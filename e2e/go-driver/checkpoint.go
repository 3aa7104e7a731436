package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// checkpoint is the file that has all prepared claims; one that is not done has no devices. As is usual with drivers on
// the Go helper it is rewritten as a whole for each claim, and not synced, unless it is to be durable.
type checkpoint struct {
	path    string
	durable bool
}

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
	if c.durable {
		if err := makeDurable(temporary); err != nil {
			return err
		}
	}
	if err := os.Rename(temporary, c.path); err != nil || !c.durable {
		return err
	}
	return makeDurable(filepath.Dir(c.path))
}

// makeDurable writes a file's content, or a folder's list of files, to the disk.
func makeDurable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
