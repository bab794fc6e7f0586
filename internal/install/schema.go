package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A CustomResourceDefinition that lacks a field makes the API server remove the field from
// each object at its next write. Another implementation, or a newer version of this one,
// may have stored values there. So install compares the definitions before it writes
// anything.

func isDefinition(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition"
}

// refuseLoss returns an error for each CustomResourceDefinition to install that lacks
// fields of the live one.
func (c *cluster) refuseLoss(ctx context.Context, objects []*unstructured.Unstructured) (lost error) {
	for _, u := range objects {
		if !isDefinition(u) {
			continue
		}
		live, err := c.get(ctx, u)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		fields, err := lostFields(live, u, func(see func(*unstructured.Unstructured)) error { return c.eachSet(ctx, see) })
		if err != nil {
			return fmt.Errorf("compare %s with the live one: %w", title(u), err)
		}
		if len(fields) > 0 {
			lost = errors.Join(lost, fmt.Errorf("%s in the cluster has %d fields that this version of Lockstep lacks, and replacing it would remove them from every object:\n  %s\n"+
				"nothing was installed; keep the implementation that wrote this definition, or install a version of Lockstep that has these fields; "+
				"to protect PVCs without replacing it: lockstep install --protect-only", title(u), len(fields), strings.Join(fields, "\n  ")))
		}
	}
	return lost
}

func (c *cluster) eachSet(ctx context.Context, see func(*unstructured.Unstructured)) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(setList)
	return c.each(ctx, list, func(o client.Object) error {
		see(o.(*unstructured.Unstructured))
		return nil
	})
}

// templates are the schemas of Kubernetes itself within ours. Which fields these have
// depends on the version of Kubernetes that a definition was generated from.
var templates = []string{
	"spec.leaderWorkerTemplate.leaderTemplate.", "spec.leaderWorkerTemplate.workerTemplate.", "spec.leaderWorkerTemplate.volumeClaimTemplates[].",
}

func inTemplate(field string) bool {
	return slices.ContainsFunc(templates, func(prefix string) bool { return strings.HasPrefix(field, prefix) })
}

// lostFields returns the property paths of the live storage version that the candidate
// lacks in the version of the same name. In templates only those count that a stored set
// has: another Kubernetes version has other fields, which most sets do not use.
func lostFields(live, candidate *unstructured.Unstructured, stored func(see func(*unstructured.Unstructured)) error) ([]string, error) {
	from, name, err := schemaOf(live, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if err != nil || name == "" {
		return nil, err
	}
	to, _, err := schemaOf(candidate, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	if err != nil {
		return nil, err
	}
	if to == nil {
		return []string{"version " + name}, nil
	}
	lost := prunedBy(to, pathsOfSchema(from, nil))
	if slices.ContainsFunc(lost, inTemplate) {
		lost = slices.DeleteFunc(lost, inTemplate)
		err = stored(func(set *unstructured.Unstructured) {
			lost = append(lost, prunedBy(to, pathsOfValue(set.Object["spec"], path{".spec"}))...)
		})
	}
	slices.Sort(lost)
	return slices.Compact(lost), err
}

// schemaOf returns the schema and the name of one version, without what the API server
// keeps whatever a schema says.
func schemaOf(u *unstructured.Unstructured, is func(apiextensionsv1.CustomResourceDefinitionVersion) bool) (*apiextensionsv1.JSONSchemaProps, string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(crd.Spec.Versions, is)
	if i < 0 {
		return nil, "", nil
	}
	version := crd.Spec.Versions[i]
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil, version.Name, nil
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(version.Schema.OpenAPIV3Schema.Properties, name)
	}
	return version.Schema.OpenAPIV3Schema, version.Name, nil
}

// path leads from a schema to one below it, by steps: a property is ".name", items of a list
// are items, values of a map are values, and anything is what a schema keeps unread.
type path []string

const items, values, anything = "[]", "{}", ".*"

func (p path) to(step string) path { return append(slices.Clip(p), step) }

func pathsOfSchema(s *apiextensionsv1.JSONSchemaProps, at path) (all []path) {
	if s == nil {
		return nil
	}
	if keepsAnything(s) {
		return []path{at.to(anything)}
	}
	for name, property := range s.Properties {
		all = append(append(all, at.to("."+name)), pathsOfSchema(&property, at.to("."+name))...)
	}
	return append(append(all, pathsOfSchema(child(s, items), at.to(items))...), pathsOfSchema(child(s, values), at.to(values))...)
}

func pathsOfValue(value any, at path) (all []path) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			all = append(all, pathsOfValue(item, at.to(items))...)
		}
	case map[string]any:
		for name, v := range value {
			all = append(append(all, at.to("."+name)), pathsOfValue(v, at.to("."+name))...)
		}
	}
	return all
}

// prunedBy returns the paths that a schema prunes.
func prunedBy(s *apiextensionsv1.JSONSchemaProps, all []path) (lost []string) {
	for _, p := range all {
		at := s
		for _, step := range p {
			if keepsAnything(at) {
				break
			}
			at = child(at, step)
		}
		if at == nil {
			lost = append(lost, strings.TrimPrefix(strings.Join(p, ""), "."))
		}
	}
	return lost
}

// keepsAnything reports whether the API server prunes nothing below a schema.
func keepsAnything(s *apiextensionsv1.JSONSchemaProps) bool {
	return s != nil && (ptr.Deref(s.XPreserveUnknownFields, false) ||
		s.AdditionalProperties != nil && s.AdditionalProperties.Allows && s.AdditionalProperties.Schema == nil)
}

// child returns the schema one step below, or nil if the API server prunes what is there.
func child(s *apiextensionsv1.JSONSchemaProps, step string) *apiextensionsv1.JSONSchemaProps {
	if s == nil || step == anything {
		return nil
	}
	if step == items {
		return ptr.Deref(s.Items, apiextensionsv1.JSONSchemaPropsOrArray{}).Schema
	}
	if property, found := s.Properties[strings.TrimPrefix(step, ".")]; found {
		return &property
	}
	return ptr.Deref(s.AdditionalProperties, apiextensionsv1.JSONSchemaPropsOrBool{}).Schema
}
