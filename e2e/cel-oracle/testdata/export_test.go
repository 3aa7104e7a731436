package cel

import (
	"encoding/json"
	"os"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
)

// TestExport writes the package's own table of cases to the file in CEL_CASES, one case as JSON for each line.
func TestExport(t *testing.T) {
	file, err := os.Create(os.Getenv("CEL_CASES"))
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewEncoder(file)
	both := []bool{false, true}
	for name, scenario := range testcases {
		lists, consumable := both, both
		if scenario.features != nil {
			lists = []bool{scenario.features.EnableListTypeAttributes}
			consumable = []bool{scenario.features.EnableConsumableCapacity}
		}
		envTypes := []environment.Type{environment.NewExpressions, environment.StoredExpressions}
		if scenario.envType != nil {
			envTypes = []environment.Type{*scenario.envType}
		}
		for _, list := range lists {
			for _, consume := range consumable {
				for _, envType := range envTypes {
					line := map[string]any{
						"name":       name,
						"expression": scenario.expression,
						"driver":     scenario.driver,
						"device": resourceapi.Device{
							Attributes:               scenario.attributes,
							Capacity:                 scenario.capacity,
							AllowMultipleAllocations: scenario.allowMultipleAllocations,
						},
						"stored":             envType == environment.StoredExpressions,
						"consumableCapacity": consume,
						"listAttributes":     list,
					}
					if err := lines.Encode(line); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
