package operator

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asked is a mapper that counts how often it is asked, and has it fail.
type asked struct {
	meta.RESTMapper
	times int
	err   error
}

func (a *asked) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	a.times++
	if a.err != nil {
		return nil, a.err
	}
	return &meta.RESTMapping{Resource: schema.GroupVersionResource{Group: kind.Group, Resource: kind.Kind}}, nil
}

// Kinds of other groups come and go, and what a version was not said for may be answered
// otherwise the next time.
func TestOnlyTheCoreIsRemembered(t *testing.T) {
	for _, tt := range []struct {
		name     string
		kind     schema.GroupKind
		versions []string
		want     int
	}{
		{"core", schema.GroupKind{Kind: "PersistentVolumeClaim"}, []string{"v1"}, 1},
		{"another group", schema.GroupKind{Group: "example.com", Kind: "PersistentVolumeClaim"}, []string{"v1"}, 3},
		{"any version", schema.GroupKind{Kind: "PersistentVolumeClaim"}, nil, 3},
		{"one of several", schema.GroupKind{Kind: "PersistentVolumeClaim"}, []string{"v1", "v2"}, 3},
	} {
		below := &asked{}
		m := &coreMapper{RESTMapper: below}
		for range 3 {
			mapping, err := m.RESTMapping(tt.kind, tt.versions...)
			if err != nil || mapping.Resource.Group != tt.kind.Group || mapping.Resource.Resource != tt.kind.Kind {
				t.Errorf("%s: %v: %v", tt.name, mapping, err)
			}
		}
		if below.times != tt.want {
			t.Errorf("%s: asked %d times, want %d", tt.name, below.times, tt.want)
		}
	}
}

func TestAnErrorIsNotRemembered(t *testing.T) {
	below := &asked{err: errors.New("refused")}
	m := &coreMapper{RESTMapper: below}
	claim := schema.GroupKind{Kind: "PersistentVolumeClaim"}
	if _, err := m.RESTMapping(claim, "v1"); err == nil {
		t.Error("the error is kept back")
	}
	below.err = nil
	if _, err := m.RESTMapping(claim, "v1"); err != nil {
		t.Errorf("remembered: %v", err)
	}
}
