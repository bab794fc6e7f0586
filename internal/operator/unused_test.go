package operator

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

// versioned is an API server of a version, or one that cannot be asked.
type versioned string

func (v versioned) ServerVersion() (*version.Info, error) {
	if v == "" {
		return nil, errors.New("down")
	}
	return &version.Info{GitVersion: string(v)}, nil
}

// Who takes the place of what is built in does as that would at the version.
func TestClaimsSayThatTheyAreUnusedAsTheClusterWouldByItself(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chosen *bool
		server versioned
		says   bool
		fails  bool
	}{
		{"before it was on by default", nil, "v1.36.3", false, false},
		{"since then", nil, "v1.37.1", true, false},
		{"of a vendor", nil, "v1.37.0-eks.5", true, false},
		{"later", nil, "v1.40.0", true, false},
		{"switched on", new(true), "v1.30.0", true, false},
		{"switched off", new(false), "v1.37.1", false, false},
		{"chosen, and nobody has to be asked", new(true), "", true, false},
		{"down", nil, "", false, true},
		{"of no version", nil, "unknown", false, true},
	} {
		says, err := saysUnused(tt.chosen, tt.server)
		if says != tt.says || (err != nil) != tt.fails {
			t.Errorf("%s: %t, %v", tt.name, says, err)
		}
	}
}
