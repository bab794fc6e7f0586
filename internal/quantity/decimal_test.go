package quantity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep.dev/lockstep/internal/quantity"
)

func TestDecimalsAreWrittenAsKubernetesWritesThem(t *testing.T) {
	for number, text := range map[string]string{
		"0.5": "500m", "-0.5": "-500m", "1.0": "1", "1e3": "1e3", "1e+21": "1e+21", "1e-07": "100e-9", "0.0000000001": "1n", "1.5e9": "1500e6",
		"1": "", `"0.5"`: "", `"1e3"`: "", "null": "", "true": "", "{}": "", "[]": "",
	} {
		found, err := inPods.Decimals(limited(`{"a~b/c":` + number + `}`))
		var want []quantity.Decimal
		if text != "" {
			want = []quantity.Decimal{{Pointer: "/spec/containers/0/resources/limits/a~0b~1c", Text: text}}
		}
		if diff := cmp.Diff(want, found, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", number, err, diff)
		}
	}
	found, err := inPods.Decimals([]byte(`{"spec":{"activeDeadlineSeconds":0.5,"containers":[{"livenessProbe":{"httpGet":{"port":0.5}}}]}}`))
	if err != nil || len(found) > 0 {
		t.Errorf("other numbers are taken for quantities: %v, %v", found, err)
	}
}

func TestMistypedQuantityIsNamed(t *testing.T) {
	for value, want := range map[string]bool{
		`"half"`: true, `""`: true, "true": true, `{"a":"1"}`: true, `["1"]`: true, `"0,5"`: true, `"1.5 Gi"`: true,
		"0.5": false, "1": false, `" 1 "`: false, "null": false, `"500m"`: false,
	} {
		mistyped := inPods.Mistyped(limited(fmt.Sprintf(`{"memory":"1Gi","cpu":%s}`, value)))
		if (mistyped != nil) != want || want && mistyped.Field != "spec.containers[0].resources.limits[cpu]" {
			t.Errorf("%s: %v", value, mistyped)
		}
	}
	if mistyped := inPods.Mistyped(limited(`{"cpu":"` + strings.Repeat("x", 1<<16) + `"}`)); len(mistyped.Error()) > 512 {
		t.Errorf("the error has %d bytes", len(mistyped.Error()))
	}
}
