package lws_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What is written on objects is written down for those who read them.
func TestEveryKeyIsWrittenDown(t *testing.T) {
	written, err := os.ReadFile("../../docs/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`= "((?:lockstep\.dev|leaderworkerset\.sigs\.k8s\.io)/[A-Za-z-]+)"`)
	found := 0
	for _, folder := range []string{"../../api/leaderworkerset/v1", "../backoff", "../gang", "../install", "."} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range key.FindAllStringSubmatch(string(source), -1) {
				found++
				if !strings.Contains(string(written), "`"+match[1]+"`") {
					t.Errorf("docs/annotations.md says nothing of %s", match[1])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d keys: they are not where this test looks", found)
	}
}
