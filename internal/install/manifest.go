package install

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/operator"
)

const (
	namespaceName = "lws-system"
	containerName = "manager"
)

// createdHere marks a namespace that install made, and that uninstall may
// therefore remove with all that is in it.
const createdHere = "lockstep.dev/created-by-install"

// manifests returns everything an installation consists of, in the order in
// which it is applied: what others refer to comes first, and what binds the cluster
// to the operator, policies and webhooks, comes last.
func (s shape) manifests() ([]*unstructured.Unstructured, error) {
	all := []*unstructured.Unstructured{namespace()}
	if len(s.Config) > 0 && s.Image != "" {
		all = append(all, s.configMap())
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
		if err := s.adapt(u); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// print writes manifests one after another, as kubectl reads them.
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

// everything is what any installation may consist of, but for protection, which
// is found by its labels. It is in the form with most in it.
func everything(protectOnly bool) ([]*unstructured.Unstructured, error) {
	s, err := Options{Image: "any", ProtectOnly: protectOnly}.shape([]string{operator.MutatingPolicy})
	if err != nil {
		return nil, err
	}
	s.Config = []byte("any")
	all, err := s.manifests()
	return slices.DeleteFunc(all, ofProtection), err
}

func namespace() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(namespaceName)
	u.SetLabels(map[string]string{"app.kubernetes.io/name": "lws", "app.kubernetes.io/instance": "lws"})
	return u
}

// setURL turns a reference to a Service into a URL with the same path.
func setURL(u *unstructured.Unstructured, base string) error {
	hooks, err := webhooksOf(u)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = map[string]any{"url": strings.TrimSuffix(base, "/") + path}
	}
	return setWebhooks(u, hooks)
}

// checkURL refuses what the API server would refuse, before anything is written.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("--webhook-url: %w", err)
	case u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("--webhook-url %q: wants https://HOST:PORT", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("--webhook-url %q: wants no user, query or fragment", text)
	}
	return nil
}

func isWebhooks(u *unstructured.Unstructured) bool {
	return strings.HasSuffix(u.GetKind(), "WebhookConfiguration")
}

func webhooksOf(u *unstructured.Unstructured) ([]map[string]any, error) {
	list, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return nil, err
	}
	hooks := make([]map[string]any, 0, len(list))
	for _, entry := range list {
		hook, ok := entry.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: webhooks hold a %T", title(u), entry)
		}
		hooks = append(hooks, hook)
	}
	return hooks, nil
}

func setWebhooks(u *unstructured.Unstructured, hooks []map[string]any) error {
	list := make([]any, len(hooks))
	for i, hook := range hooks {
		list[i] = hook
	}
	return unstructured.SetNestedSlice(u.Object, list, "webhooks")
}

// read returns the objects of all YAML files, in the order of the files' names.
func read(files fs.FS) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
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
		switch err := decoder.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("manifest %q: %w", path, err)
		case len(u.Object) > 0:
			objects = append(objects, u)
		}
	}
}

// title names an object the way kubectl does.
func title(u *unstructured.Unstructured) string {
	kind := u.GroupVersionKind().GroupKind()
	name := strings.ToLower(kind.Kind)
	if kind.Group != "" {
		name += "." + kind.Group
	}
	return name + "/" + u.GetName()
}
