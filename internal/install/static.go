package install

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"
)

// staticSuffix ends the names of policies that an API server reads from files, and
// of no others: nobody can make, change or delete one of these by a request.
const staticSuffix = ".static.k8s.io"

// plugins are the parts of an API server that read policies from files, and where: a
// directory holds the kinds of one of them, and no other.
var plugins = []struct{ name, directory string }{
	{"ValidatingAdmissionPolicy", "validating"},
	{"MutatingAdmissionPolicy", "mutating"},
}

const (
	policiesFile  = "lockstep.yaml"
	admissionFile = "admission.yaml"
)

// writeStatic writes the policies of protection as files for API servers to load at
// their start, and the configuration that has them do so.
func (o Options) writeStatic() error {
	s, err := o.shape(nil)
	if err != nil {
		return err
	}
	if !s.protects {
		return errors.New("--static-policies with protection switched off leaves nothing to write; drop one of them")
	}
	root, err := filepath.Abs(o.StaticPolicies)
	if err != nil {
		return err
	}
	objects, err := s.manifests()
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		text, err := static(objects, plugin.name)
		if err != nil {
			return err
		}
		if err := o.writeFile(filepath.Join(root, plugin.directory, policiesFile), text); err != nil {
			return err
		}
	}
	if err := o.writeFile(filepath.Join(root, admissionFile), admission(root)); err != nil {
		return err
	}
	o.say("start every API server with --admission-control-config-file=%s; once it serves, it rereads the policies when they change", filepath.Join(root, admissionFile))
	return nil
}

// static is the policies of a plugin, and their bindings, under the names that they
// have in files.
func static(objects []*unstructured.Unstructured, plugin string) ([]byte, error) {
	var text bytes.Buffer
	for _, u := range objects {
		if !ofProtection(u) || strings.TrimSuffix(u.GetKind(), "Binding") != plugin {
			continue
		}
		u = u.DeepCopy()
		u.SetName(u.GetName() + staticSuffix)
		if policy, bound, err := unstructured.NestedString(u.Object, "spec", "policyName"); err != nil {
			return nil, fmt.Errorf("%s: %w", title(u), err)
		} else if bound {
			if err := unstructured.SetNestedField(u.Object, policy+staticSuffix, "spec", "policyName"); err != nil {
				return nil, fmt.Errorf("%s: %w", title(u), err)
			}
		}
		yaml, err := sigsyaml.Marshal(u.Object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", title(u), err)
		}
		fmt.Fprintf(&text, "---\n%s", yaml)
	}
	return text.Bytes(), nil
}

// admission is the file that names the directories to an API server, as it finds them.
func admission(root string) []byte {
	text := bytes.NewBufferString("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n")
	for _, plugin := range plugins {
		fmt.Fprintf(text, "- name: %s\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: %sConfiguration\n    staticManifestsDir: %q\n",
			plugin.name, plugin.name, filepath.Join(root, plugin.directory))
	}
	return text.Bytes()
}

// writeFile writes a file as a whole: an API server may be reading it.
func (o Options) writeFile(path string, text []byte) error {
	if o.DryRun {
		o.say("%s written", path)
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	o.say("%s written", path)
	return nil
}
