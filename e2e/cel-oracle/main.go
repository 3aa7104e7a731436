// Command cel-oracle says what the scheduler's CEL package makes of device selectors.
//
//	cel-oracle < CASES
//
// Reads one case as JSON for each line and writes one answer for each.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// testCase is a selector, a device, and how the selector is compiled.
type testCase struct {
	Name               string             `json:"name"`
	Expression         string             `json:"expression"`
	Driver             string             `json:"driver"`
	Device             resourceapi.Device `json:"device"`
	Stored             bool               `json:"stored"`
	ConsumableCapacity bool               `json:"consumableCapacity"`
	ListAttributes     bool               `json:"listAttributes"`
}

// answer has exactly one of its fields.
type answer struct {
	Matches  *bool  `json:"matches,omitempty"`
	Rejected string `json:"rejected,omitempty"`
	Failed   string `json:"failed,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cel-oracle:", err)
		os.Exit(1)
	}
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c testCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if err := answers.Encode(judge(c)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func judge(c testCase) answer {
	features := cel.Features{
		EnableConsumableCapacity: c.ConsumableCapacity,
		EnableListTypeAttributes: c.ListAttributes,
	}
	envType := environment.NewExpressions
	if c.Stored {
		envType = environment.StoredExpressions
	}
	compiled := cel.GetCompiler(features).CompileCELExpression(c.Expression, cel.Options{EnvType: &envType})
	if compiled.Error != nil {
		return answer{Rejected: compiled.Error.Error()}
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   c.Driver,
		AllowMultipleAllocations: c.Device.AllowMultipleAllocations,
		Attributes:               c.Device.Attributes,
		Capacity:                 c.Device.Capacity,
	})
	if err != nil {
		return answer{Failed: err.Error()}
	}
	return answer{Matches: &matches}
}
