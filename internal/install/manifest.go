package install

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/config/crd"
)

// createdHere marks a namespace that install created, and that uninstall may delete.
const createdHere = "lockstep.dev/created-by-install"

// manifests returns all objects of an installation, in the order in which they are applied:
// policies and webhooks, which bind the cluster to the operator, come last.
func (s shape) manifests() ([]*unstructured.Unstructured, error) {
	all := []*unstructured.Unstructured{object("v1", "Namespace", "", namespaceName)}
	if s.Image != "" {
		all = append(all, s.configMap())
	}
	for _, u := range all {
		u.SetLabels(map[string]string{nameLabel: setsLabel, "app.kubernetes.io/instance": setsLabel})
	}
	for _, files := range []fs.FS{crd.Files, config.Access, config.Deployment, config.Protection, config.Webhooks, config.Policy} {
		objects, err := read(files)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	all = slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool { return !s.wants(u) })
	for _, u := range all {
		if err := s.render(u); err != nil {
			return nil, fmt.Errorf("%s: %w", title(u), err)
		}
	}
	return all, nil
}

// print writes manifests as kubectl reads them.
func (o Options) print() error {
	s, err := o.shape(nil)
	if err != nil {
		return err
	}
	objects, err := s.manifests()
	if err != nil {
		return err
	}
	for _, u := range objects {
		text, err := sigsyaml.Marshal(u.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", title(u), err)
		}
		fmt.Fprintf(o.Out, "---\n%s", text)
	}
	return nil
}

// setURL turns references to a Service into URLs with the same path.
func setURL(u *unstructured.Unstructured, base string) {
	for _, hook := range webhooksOf(u) {
		path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
		hook["clientConfig"] = map[string]any{"url": strings.TrimSuffix(base, "/") + path}
	}
}

func isWebhooks(u *unstructured.Unstructured) bool {
	return strings.HasSuffix(u.GetKind(), "WebhookConfiguration")
}

// webhooksOf returns the webhooks themselves, no copies.
func webhooksOf(u *unstructured.Unstructured) (hooks []map[string]any) {
	list, _ := u.Object["webhooks"].([]any)
	for _, entry := range list {
		if hook, ok := entry.(map[string]any); ok {
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

// read returns the objects of all YAML files, in the order of the files' names.
func read(files fs.FS) (all []*unstructured.Unstructured, err error) {
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		objects, err := readFile(files, path)
		all = append(all, objects...)
		return err
	})
	return all, err
}

func readFile(files fs.FS, path string) (objects []*unstructured.Unstructured, err error) {
	file, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifest %q: %w", path, err)
		}
		objects = append(objects, u)
	}
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// title names an object as kubectl does.
func title(u *unstructured.Unstructured) string {
	kind := u.GroupVersionKind().GroupKind()
	name := strings.ToLower(kind.Kind)
	if kind.Group != "" {
		name += "." + kind.Group
	}
	return name + "/" + u.GetName()
}
