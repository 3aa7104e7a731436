// Command metadata-oracle reads a device metadata file as Go workloads do, and writes it as the Go helper does.
//
//	metadata-oracle [-validate] < FILE
//
// Prints what it has read in version v1beta1. Exit status: 0 read, and valid if that was asked for; 1 not.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

func main() {
	validate := flag.Bool("validate", false, "fail if the rules of the API are broken")
	flag.Parse()
	if err := run(*validate); err != nil {
		fmt.Fprintln(os.Stderr, "metadata-oracle:", err)
		os.Exit(1)
	}
}

func run(validate bool) error {
	var metadata v1beta1.DeviceMetadata
	var options []devicemetadata.DecodeMetadataOption
	var invalid error
	if validate {
		options = append(options, devicemetadata.DecodeMetadataWithValidationResult(&invalid))
	}
	err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(os.Stdin), &metadata, options...)
	if err != nil {
		return err
	}
	if invalid != nil {
		return invalid
	}
	text, err := json.MarshalIndent(&metadata, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
