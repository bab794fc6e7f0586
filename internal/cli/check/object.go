package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofKinds returns the expected objects of some kinds.
func (s *site) ofKinds(kinds ...string) (all []*unstructured.Unstructured) {
	for _, u := range s.Objects {
		if slices.Contains(kinds, u.GetKind()) {
			all = append(all, u)
		}
	}
	return all
}

// get returns the object in the cluster that has kind and name of another, or nil.
func (s *site) get(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(want), live)
	if meta.IsNoMatchError(err) || err != nil && client.IgnoreNotFound(err) == nil {
		return nil, nil
	}
	return live, err
}

// title names an object as kubectl does.
func title(u *unstructured.Unstructured) string {
	return strings.ToLower(u.GetKind()) + "/" + u.GetName()
}

// present returns the objects in the cluster that are expected. Those that do not exist, and
// each that the user may not read, are findings.
func (s *site) present(ctx context.Context, f *findings, wanted []*unstructured.Unstructured) (found []*unstructured.Unstructured) {
	var missing []string
	for _, want := range wanted {
		live, err := s.get(ctx, want)
		switch {
		case err != nil:
			f.take(err)
		case live == nil:
			missing = append(missing, title(want))
		default:
			found = append(found, live)
		}
	}
	if len(missing) > 0 {
		f.fail("%d of %d do not exist: %s; run: %s", len(missing), len(wanted), few(missing), s.Command)
	}
	return found
}

// compare finds objects that differ from what install writes in more than what the API server adds.
func (s *site) compare(f *findings, result Result, found []*unstructured.Unstructured) {
	for _, live := range found {
		i := slices.IndexFunc(s.Objects, func(want *unstructured.Unstructured) bool {
			return title(want) == title(live) && want.GetNamespace() == live.GetNamespace()
		})
		if path := differs(content(s.Objects[i]), content(live), ""); path != "" {
			f.add(result, "%s differs at %s from what install writes; to write it again: %s", title(live), strings.TrimPrefix(path, "."), s.Command)
		}
	}
}

// content is an object without what names it.
func content(u *unstructured.Unstructured) map[string]any {
	fields := map[string]any{}
	for name, value := range u.Object {
		if name != "metadata" && name != "status" {
			fields[name] = value
		}
	}
	return fields
}

// differs returns the first path at which a live value lacks a wanted one, or nothing. The API
// server adds defaults to maps, and nothing to lists.
func differs(want, live any, at string) string {
	switch want := want.(type) {
	case map[string]any:
		live, _ := live.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if path := differs(want[name], live[name], at+"."+name); path != "" {
				return path
			}
		}
		return ""
	case []any:
		live, _ := live.([]any)
		if len(live) != len(want) {
			return at
		}
		for i := range want {
			if path := differs(want[i], live[i], fmt.Sprintf("%s[%d]", at, i)); path != "" {
				return path
			}
		}
		return ""
	}
	if fmt.Sprint(want) != fmt.Sprint(live) { // numbers of JSON and YAML have different types
		return at
	}
	return ""
}
