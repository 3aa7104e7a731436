// Command cdi-oracle says what a container runtime makes of a folder of CDI
// files. It asks the Go library that containerd and CRI-O link in, so that a
// writer in another language can be judged by it.
//
// It reads requests from standard input, one JSON object a line, and answers
// each with one line:
//
//	{"dir": "/tmp/case1", "inject": ["vendor.com/class=dev"]}
//	{"library": "v1.0.1", "specs": [...], "errors": {}, "oci": {...}}
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const libraryModule = "tags.cncf.io/container-device-interface"

type request struct {
	// Dir is the folder to load.
	Dir string `json:"dir"`
	// Inject lists the devices to put into an empty container; none: only load.
	Inject []string `json:"inject"`
}

type answer struct {
	// Library is the version of the Go library.
	Library string `json:"library"`
	// Specs are the files that it accepted.
	Specs []spec `json:"specs"`
	// Errors says for each refused file why.
	Errors map[string][]string `json:"errors"`
	// OCI is the container's configuration after the injection.
	OCI *oci.Spec `json:"oci,omitempty"`
	// Failure is set if loading or injecting failed as a whole. It begins with
	// "panic:" where a runtime would have died.
	Failure string `json:"failure,omitempty"`
}

type spec struct {
	Version string `json:"version"`
	// MinimumVersion is the lowest that the library finds sufficient.
	MinimumVersion string   `json:"minimumVersion"`
	Kind           string   `json:"kind"`
	Devices        []string `json:"devices"`
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "cdi-oracle:", err)
		os.Exit(1)
	}
}

func serve() error {
	library := libraryVersion()
	requests := json.NewDecoder(bufio.NewReader(os.Stdin))
	answers := json.NewEncoder(os.Stdout)
	for requests.More() {
		var asked request
		if err := requests.Decode(&asked); err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		given := judge(asked)
		given.Library = library
		if err := answers.Encode(given); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
	return nil
}

// judge loads the folder as a runtime does, without watching it.
func judge(asked request) (given answer) {
	given = answer{Specs: []spec{}, Errors: map[string][]string{}}
	defer func() {
		if cause := recover(); cause != nil {
			given.Failure = fmt.Sprintf("panic: %v", cause)
		}
	}()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Dir), cdi.WithAutoRefresh(false))
	if err != nil {
		given.Failure = err.Error()
		return given
	}
	_ = cache.Refresh() // GetErrors holds the same, by file.
	for path, errs := range cache.GetErrors() {
		for _, err := range errs {
			given.Errors[path] = append(given.Errors[path], err.Error())
		}
	}
	for _, vendor := range cache.ListVendors() {
		for _, loaded := range cache.GetVendorSpecs(vendor) {
			given.Specs = append(given.Specs, describe(loaded))
		}
	}
	if len(asked.Inject) > 0 {
		container := &oci.Spec{}
		if _, err := cache.InjectDevices(container, asked.Inject...); err != nil {
			given.Failure = err.Error()
			return given
		}
		given.OCI = container
	}
	return given
}

func describe(loaded *cdi.Spec) spec {
	described := spec{Version: loaded.Version, Kind: loaded.Kind, Devices: []string{}}
	if minimum, err := cdi.MinimumRequiredVersion(loaded.Spec); err == nil {
		described.MinimumVersion = minimum
	}
	for _, device := range loaded.Devices {
		described.Devices = append(described.Devices, device.Name)
	}
	return described
}

func libraryVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == libraryModule {
				return module.Version
			}
		}
	}
	return "unknown"
}
