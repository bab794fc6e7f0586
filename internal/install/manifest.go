package install

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/operator"
)

const (
	namespaceName  = "lws-system"
	deploymentName = "lws-controller-manager"
	// An installation for LeaderWorkerSets has the first ClusterRole, and one of protection alone the second.
	managerRole         = "lws-manager-role"
	standaloneProxyRole = "lockstep-proxy-role"

	configDir = "/etc/lockstep"
	// configLabel makes a Deployment replace its pods when the configuration changes, and
	// tells the pods of one configuration from those of another.
	configLabel = "lockstep.dev/configuration"
	// noConfiguration is the ConfigMap of an operator that runs with the defaults.
	noConfiguration = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"

	// createdHere marks a namespace that install created, and that uninstall may delete.
	createdHere = "lockstep.dev/created-by-install"
	// whenAnnotation lists the conditions under which a manifest is installed.
	whenAnnotation = "lockstep.dev/install-when"
)

// standalone matches the names for which an installation of protection alone has others, so that it stands beside any
// installation for LeaderWorkerSets.
var standalone = regexp.MustCompile(`"lws(-(controller-manager|proxy|metrics|operator)[a-z-]*)?"`)

// isStandalone reports whether an object has a name of protection alone, or protects PVCs.
func isStandalone(u *unstructured.Unstructured) bool {
	return u.GetLabels()[nameLabel] == standaloneLabel || u.GetNamespace() == v1alpha1.InstalledProtectionNamespace
}

// namespace is where the operator runs.
func (o Options) namespace() string {
	switch {
	case o.place.Namespace != "":
		return o.place.Namespace
	case o.ProtectOnly:
		return v1alpha1.InstalledProtectionNamespace
	}
	return namespaceName
}

// prefix begins the names that the chart lets users choose.
func (o Options) prefix() string {
	prefix, isKnown := strings.CutSuffix(o.place.Account, "-controller-manager")
	switch {
	case o.ProtectOnly:
		return standaloneLabel
	case isKnown:
		return prefix
	}
	return setsLabel
}

// shape is what to install: by choice, and by what the API server serves.
type shape struct {
	Options
	config   *v1alpha1.Configuration
	settings operator.ProtectionSettings
	// protects reports whether PVCs in use are protected.
	protects bool
	// authority signs the certificate of the webhooks.
	authority []byte
	// lacks are the kinds of policies that the API server does not serve.
	lacks []string
}

func (o Options) shape(lacks []string) (shape, error) {
	config, err := operator.ParseConfig(o.Config)
	if err != nil {
		return shape{}, fmt.Errorf("configuration: %w", err)
	}
	if faults := operator.ValidateConfig(config); len(faults) > 0 {
		return shape{}, fmt.Errorf("configuration: %w", faults.ToAggregate())
	}
	err = operator.CheckCrashLogLines(o.CrashLogLines)
	if err == nil && o.WebhookURL != "" {
		err = checkURL(o.WebhookURL)
	}
	s := shape{
		Options: o, lacks: lacks, config: config, settings: operator.SettingsOf(config.Protection, o.namespace()),
		protects: *config.Protection.Enabled && !o.NoProtection,
	}
	switch paths := unfit(config); {
	case err != nil:
		return s, err
	case o.WebhookCA != "" && !s.signs():
		return s, errors.New("--webhook-ca: the operator of this installation signs no certificate; leave the flag out")
	case o.ProtectOnly && !s.protects:
		return s, errors.New("--protect-only with protection switched off leaves nothing to install; drop one of them")
	case o.Image != "" && len(paths) > 0:
		return s, fmt.Errorf("configuration: %s: install --image knows the default alone; leave it out, or run the operator from manifests of your own (--print)", paths[0])
	}
	return s, nil
}

// manifests returns all objects of an installation, in the order in which they are applied: policies and webhooks,
// which bind the cluster to the operator, come last. It panics on a mistake in the manifests, which are compiled in.
func (s shape) manifests() []*unstructured.Unstructured {
	all := []*unstructured.Unstructured{Bare("v1", "Namespace", "", namespaceName)}
	if s.Image != "" {
		all = append(all, s.configMap())
	}
	for _, u := range all {
		u.SetLabels(map[string]string{nameLabel: setsLabel, "app.kubernetes.io/instance": setsLabel})
	}
	all = append(all, read(crd.Files, ".")...)
	for _, dir := range []string{"rbac", "deployment", "protection", "webhook", "policy"} {
		all = append(all, read(config.Files, dir)...)
	}
	all = slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool { return !s.wants(u) })
	for _, u := range all {
		s.render(u)
	}
	return all
}

// wants reports whether an object is part of this installation.
func (s shape) wants(u *unstructured.Unstructured) bool {
	isOlder := slices.Contains(s.lacks, operator.MutatingPolicy)
	holds := map[string]bool{
		"sets":         !s.ProtectOnly,
		"image":        s.Image != "",
		"service":      s.WebhookURL == "" || s.Image != "",
		"certificates": *s.config.InternalCertManagement.Enable,
		"crashLogs":    s.CrashLogLines > 0,
		"leaseReader":  !s.NoLeaseReader,
		"alone":        s.settings.Alone,
		"initialHold":  s.settings.InitialHold,
		"older":        isOlder,
		"newer":        !isOlder, // without the gate, gated refuses all pods of mode strict
	}
	for when := range strings.FieldsSeq(u.GetAnnotations()[whenAnnotation]) {
		if !holds[when] {
			return false
		}
	}
	isServed := !slices.Contains(s.lacks, strings.TrimSuffix(u.GetKind(), "Binding"))
	return isServed && (s.protects || !ofProtection(u)) && (!s.ProtectOnly || !isDefinition(u))
}

// render writes the user's choices into a manifest.
func (s shape) render(u *unstructured.Unstructured) {
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", whenAnnotation)
	if len(u.GetAnnotations()) == 0 {
		u.SetAnnotations(nil)
	}
	if ofProtection(u) {
		chooseProtection(u, s.settings)
	}
	if u.GetKind() == "Deployment" {
		s.setOperator(u)
	}
	for _, hook := range Webhooks(u) {
		if s.WebhookURL != "" {
			path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
			hook["clientConfig"] = map[string]any{"url": strings.TrimSuffix(s.WebhookURL, "/") + path}
		}
		setBundle(hook, s.authority)
	}
	if s.ProtectOnly || s.place.Namespace != "" {
		s.rename(u)
	}
}

// prefixed matches the names whose prefix the chart lets users choose.
var prefixed = regexp.MustCompile(`"lws(-(controller-manager|manager-role|leader-election-role|proxy-role|metrics-reader|certificates-role|lease-reader-|crash-logs-role|node-reader-role|leaderworkerset-)[a-z-]*)"`)

// rename gives a manifest the namespace of the operator, and the names that its objects have there.
func (s shape) rename(u *unstructured.Unstructured) {
	text, renamed := string(must(u.MarshalJSON())), prefixed
	if s.ProtectOnly {
		text = strings.ReplaceAll(text, `"lws-controller-manager-metrics-`, `"lws-metrics-`)
		renamed = standalone
	}
	text = renamed.ReplaceAllString(text, `"`+s.prefix()+`$1"`)
	*u = *decode([]byte(strings.ReplaceAll(text, strconv.Quote(namespaceName), strconv.Quote(s.namespace()))))
}

// setOperator writes image, arguments and configuration into the Deployment.
func (s shape) setOperator(u *unstructured.Unstructured) {
	template := u.Object["spec"].(map[string]any)["template"].(map[string]any)
	pod, args := template["spec"].(map[string]any), s.arguments()
	operator := pod["containers"].([]any)[0].(map[string]any)
	always, _, _ := unstructured.NestedStringSlice(operator, "args")
	_ = unstructured.SetNestedStringSlice(operator, append(always, args...), "args")
	operator["image"] = s.Image
	if len(s.Config) > 0 {
		operator["volumeMounts"] = []any{map[string]any{"name": v1alpha1.InstalledName, "mountPath": configDir, "readOnly": true}}
		pod["volumes"] = []any{map[string]any{"name": v1alpha1.InstalledName, "configMap": map[string]any{"name": v1alpha1.InstalledName}}}
	}
	if len(args) > 0 {
		template["metadata"].(map[string]any)["labels"].(map[string]any)[configLabel] = s.mark()
	}
}

// configMap returns the configuration of the operator. Without one it holds the defaults:
// kubectl lockstep why reads it.
func (s shape) configMap() *unstructured.Unstructured {
	u := Bare("v1", "ConfigMap", namespaceName, v1alpha1.InstalledName)
	u.Object["data"] = map[string]any{v1alpha1.InstalledKey: cmp.Or(string(s.Config), noConfiguration)}
	return u
}

// arguments are those that the manifest does not have.
func (s shape) arguments() (args []string) {
	if len(s.Config) > 0 {
		args = append(args, "--config="+configDir+"/"+v1alpha1.InstalledKey)
	}
	if s.ProtectOnly {
		args = append(args, "--protect-only")
	}
	if s.NoProtection {
		args = append(args, "--protection=false")
	}
	if s.CrashLogLines > 0 {
		args = append(args, fmt.Sprintf("--crash-log-lines=%d", s.CrashLogLines))
	}
	return args
}

// mark identifies a configuration.
func (s shape) mark() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s", s.arguments(), s.Config))
	return hex.EncodeToString(sum[:8])
}

// print writes manifests as kubectl reads them.
func (o Options) print() error {
	s, err := o.shape(nil)
	if err == nil {
		err = s.printAuthority()
	}
	if err != nil {
		return err
	}
	for _, u := range s.manifests() {
		fmt.Fprintf(o.Out, "---\n%s", must(sigsyaml.Marshal(u.Object)))
	}
	return nil
}

// read returns the objects of all YAML files of a directory, in the order of the files' names.
func read(files fs.FS, dir string) (all []*unstructured.Unstructured) {
	for _, name := range must(fs.Glob(files, path.Join(dir, "*.yaml"))) {
		for _, document := range bytes.Split(must(fs.ReadFile(files, name)), []byte("\n---\n")) {
			all = append(all, decode(document))
		}
	}
	return all
}

func decode(text []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	return must(u, sigsyaml.Unmarshal(text, u))
}

// must returns what cannot fail for manifests.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Bare returns an object with its kind and name, and nothing else.
func Bare(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// title names an object as kubectl does.
func title(u *unstructured.Unstructured) string {
	return strings.ToLower(u.GroupVersionKind().GroupKind().String()) + "/" + u.GetName()
}

// Webhooks returns the webhooks of a configuration themselves, no copies.
func Webhooks(u *unstructured.Unstructured) (hooks []map[string]any) {
	list, _ := u.Object["webhooks"].([]any)
	for _, entry := range list {
		if hook, ok := entry.(map[string]any); ok {
			hooks = append(hooks, hook)
		}
	}
	return hooks
}
