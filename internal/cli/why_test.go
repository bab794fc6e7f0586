package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestClaimsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
		says string
	}{
		{[]string{"pvc/a"}, []string{"a"}, ""},
		{[]string{"pvc", "a", "b"}, []string{"a", "b"}, ""},
		{[]string{"PVC/a", "persistentvolumeclaims/b", "pvc/a"}, []string{"a", "b"}, ""},
		{[]string{"pvc"}, nil, ""},
		{nil, nil, "say about what"},
		{[]string{"a"}, nil, `"a": say what it is: pvc/a`},
		{[]string{"pv/a"}, nil, "no PersistentVolumeClaim"},
		{[]string{"pvc/"}, nil, "name is missing"},
	} {
		got, err := claimNames(tt.args)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: got %v, %v", tt.args, got, err)
		}
	}
}
