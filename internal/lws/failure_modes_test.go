package lws_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The parts of tests that the table of failure modes names are there, and every part
// there is has its row. That tests of these names exist is checked with all documents.
func TestFailureModesAreTested(t *testing.T) {
	table, err := os.ReadFile("../../docs/failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]map[string]func(*cluster){"TestFailureModes": failures, "TestFailureModesInStart": failuresInStart}
	named := map[string]bool{}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)/([A-Za-z]+)`").FindAllStringSubmatch(string(table), -1) {
		part := strings.TrimSuffix(name[2], "WhileDown")
		named[name[1]+"/"+part] = true
		if parts[name[1]][part] == nil {
			t.Errorf("test %s has no part %s", name[1], name[2])
		}
	}
	for test, ways := range parts {
		for part := range ways {
			if !named[test+"/"+part] {
				t.Errorf("no row of the table names %s/%s", test, part)
			}
		}
	}
}
