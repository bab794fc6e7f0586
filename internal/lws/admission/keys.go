package admission

import (
	_ "embed" // the table of keys
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	utilstrings "k8s.io/utils/strings"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// keyTable has a line for each key of ours: part of the page, sort, key, what it is on, what it says. The lines of
// sets have what it says and what its absence means. docs/annotations.md is generated from it.
//
//go:embed keys.txt
var keyTable string

// ofSets are the annotations that a set may have, and elsewhere is what other keys are on.
var ofSets, elsewhere = readKeys()

func readKeys() (ofSets []string, elsewhere map[string]string) {
	elsewhere = map[string]string{}
	for line := range strings.Lines(keyTable) {
		row := strings.Split(line, " | ")
		if row[0] == "set" {
			ofSets = append(ofSets, row[2])
		} else {
			elsewhere[row[2]] = row[3]
		}
	}
	return ofSets, elsewhere
}

// mostUnknown is how many unknown annotations are named: an object may have thousands.
const mostUnknown = 5

// warnAnnotations names annotations under our prefixes that do nothing on a set.
func warnAnnotations(set *lwsv1.LeaderWorkerSet) (warnings []string) {
	for _, key := range slices.Sorted(maps.Keys(set.Annotations)) {
		prefix, name, _ := strings.Cut(key, "/")
		if !slices.Contains([]string{"leaderworkerset.sigs.k8s.io", "lockstep.dev", "protection.lockstep.dev"}, prefix) || slices.Contains(ofSets, key) {
			continue
		}
		why := fmt.Sprintf("is unknown and does nothing; the nearest known key is %s", nearest(shortened(name)))
		if on, known := elsewhere[key]; known {
			why = "does nothing on a set; it is for: " + on
		}
		warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: %s", utilstrings.ShortenString(key, 100), why))
		if len(warnings) == mostUnknown {
			break
		}
	}
	return warnings
}

// nearest returns the key of sets whose name has the fewest edits from a name.
func nearest(name string) string {
	return slices.MinFunc(ofSets, func(a, b string) int {
		return levenshtein.ComputeDistance(name, nameOf(a)) - levenshtein.ComputeDistance(name, nameOf(b))
	})
}

func nameOf(key string) string { return key[strings.LastIndex(key, "/")+1:] }
