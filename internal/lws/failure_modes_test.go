package lws_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that the table of failure modes names are there.
func TestFailureModesAreTested(t *testing.T) {
	table, err := os.ReadFile("../../docs/failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "../controller/*_test.go", "../../test/cluster/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	named := regexp.MustCompile("`(Test[A-Za-z]+)(?:/([A-Za-z]+))?`").FindAllStringSubmatch(string(table), -1)
	if len(named) < 15 {
		t.Fatalf("invalid run: only %d tests are named", len(named))
	}
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("there is no test %s", name[1])
		}
		if part := strings.TrimSuffix(name[2], "WhileDown"); part != "" && !strings.Contains(code.String(), `"`+part+`":`) {
			t.Errorf("test %s has no part %s", name[1], part)
		}
	}
}
