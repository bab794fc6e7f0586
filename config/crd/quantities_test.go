package crd_test

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/quantity"
)

// limit is a set whose workers may take this much.
func limit(tb testing.TB, text string) object {
	tb.Helper()
	return set(tb, `leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, resources: {limits: {cpu: "`+text+`"}}}]}}}`)
}

func TestQuantitiesThatUsersWriteAreTaken(t *testing.T) {
	gate := newGate(t)
	for _, text := range []string{
		"0", "1", "+1", "-1", "1.5Gi", "+1.5Gi", ".5", "1.", "0.25", "500m", "100n", "5u", "2k", "2M", "2G", "2T", "2P", "2E",
		"1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei", "1e3", "1E3", "1e+03", "1e-3", "1.5e9", "12e6", "9223372036854775807",
	} {
		if _, err := resource.ParseQuantity(text); err != nil {
			t.Fatal(err)
		}
		if faults := gate.create(t, limit(t, text)); len(faults) > 0 {
			t.Errorf("%q: %v", text, faults)
		}
	}
}

func TestCostlyQuantitiesAreRefused(t *testing.T) {
	gate := newGate(t)
	for _, text := range []string{
		"1e-2147483647", "1e2147483647", "0e-2147483648", "1E+100", "1e001", "1e1.5", "1e.5",
		strings.Repeat("9", 65), "0." + strings.Repeat("0", 64) + "1", strings.Repeat("9", 64) + "Ei",
	} {
		if faults := gate.create(t, limit(t, text)); len(faults) == 0 {
			t.Errorf("%q is taken", text)
		}
	}
}

// The webhook may be missing. Whatever the definition takes must be harmless by
// itself; so must it be in every place, and there are more than one.
func TestEveryQuantityIsBounded(t *testing.T) {
	text, err := crd.Files.ReadFile(setFile)
	if err != nil {
		t.Fatal(err)
	}
	patterns, places := map[string]bool{}, 0
	for _, schema := range quantitySchemas(parse(t, string(text))) {
		places++
		patterns[schema["pattern"].(string)] = true
		if schema["maxLength"] != int64(64) {
			t.Errorf("a quantity has the length %v", schema["maxLength"])
		}
	}
	if places < 30 || len(patterns) != 1 {
		t.Fatalf("%d quantities with the patterns %v, want at least 30 with one", places, patterns)
	}
	for pattern := range patterns {
		matches := regexp.MustCompile(pattern)
		texts := rapid.StringMatching(pattern)
		rapid.Check(t, func(t *rapid.T) {
			text := texts.Draw(t, "text")
			if len(text) > 64 || !matches.MatchString(text) {
				return
			}
			if !quantity.Harmless(text) {
				t.Fatalf("%q is taken and costly", text)
			}
			if _, err := resource.ParseQuantity(text); err != nil {
				t.Fatalf("%q is taken and no quantity: %v", text, err)
			}
		})
	}
}

// quantitySchemas finds what is an integer or a text with a pattern.
func quantitySchemas(node any) []object {
	var found []object
	switch n := node.(type) {
	case object:
		if _, patterned := n["pattern"].(string); patterned && n["x-kubernetes-int-or-string"] == true {
			found = append(found, n)
		}
		for _, child := range n {
			found = append(found, quantitySchemas(child)...)
		}
	case []any:
		for _, item := range n {
			found = append(found, quantitySchemas(item)...)
		}
	}
	return found
}
