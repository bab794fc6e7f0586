package operator

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/leaderelection"
	certutil "k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/file"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// LoadConfig reads the configuration file at path, in YAML or JSON, and sets the defaults.
// Without a path it returns the defaults. An unknown or repeated field is an error.
func LoadConfig(path string) (*v1alpha1.Configuration, error) {
	if path == "" {
		return ParseConfig(nil)
	}
	text, err := file.Read(path, MostConfig)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %q: %w", path, err)
	}
	return config, nil
}

// MostConfig is how many MiB a ConfigMap holds.
const MostConfig = 1

// ParseConfig reads the text of a configuration and sets the defaults. Nil is the defaults alone.
func ParseConfig(text []byte) (*v1alpha1.Configuration, error) {
	config := &v1alpha1.Configuration{}
	if text != nil {
		if err := decodeConfig(text, config); err != nil {
			return nil, err
		}
	}
	v1alpha1.SetDefaults(config)
	return config, nil
}

func decodeConfig(text []byte, config *v1alpha1.Configuration) error {
	if err := file.CheckYAML(text, MostConfig); err != nil {
		return err
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(document, config)
	if err != nil {
		return err
	}
	read := []string{v1alpha1.GroupVersion.String(), v1alpha1.NextVersion.String()}
	if !slices.Contains(read, config.APIVersion) || config.Kind != "Configuration" {
		return fmt.Errorf("wants apiVersion: %s and kind: Configuration", strings.Join(read, " or "))
	}
	return errors.Join(strict...)
}

// ProtectionSettings are the protection of PVCs as the controllers need it.
type ProtectionSettings struct {
	pvc.Settings
	// Kinds are configured workloads, JobSet and DisaggregatedSet.
	Kinds []workloads.Kind
	// Grace is how long a PVC stays held after its last holder is gone.
	Grace time.Duration
	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration
	// InitialHold reports whether a policy holds PVCs from their creation until the operator has read their holders.
	InitialHold bool
}

// SettingsOf reads a configuration that is valid and has its defaults. The operator's own
// namespace is never protected: it must be deletable without the operator.
func SettingsOf(p v1alpha1.Protection, ownNamespace string) ProtectionSettings {
	exempt := slices.Clone(p.ExemptNamespaces)
	if !slices.Contains(exempt, ownNamespace) {
		exempt = append(exempt, ownNamespace)
	}
	return ProtectionSettings{
		Settings: pvc.Settings{
			Mode:   protectionModes[p.Mode],
			Alone:  p.Alone,
			Exempt: exempt,
			Idle:   p.Idle,
		},
		Kinds:       workloads.KindsOf(p.Kinds),
		Grace:       time.Duration(*p.GraceSeconds) * time.Second,
		ReleaseTTL:  time.Duration(*p.ReleaseTTLSeconds) * time.Second,
		InitialHold: initialHolds[p.InitialHold],
	}
}

var protectionModes = map[v1alpha1.ProtectionMode]pvc.Mode{
	v1alpha1.ProtectionOff:     pvc.Off,
	v1alpha1.ProtectionObserve: pvc.Observe,
	v1alpha1.ProtectionBarrier: pvc.Barrier,
	v1alpha1.ProtectionHold:    pvc.Hold,
	v1alpha1.ProtectionStrict:  pvc.Strict,
}

var idlePolicies = map[v1alpha1.IdlePolicy]bool{v1alpha1.IdleHold: true, v1alpha1.IdleWarn: true, v1alpha1.IdleFree: true}

var initialHolds = map[v1alpha1.InitialHold]bool{v1alpha1.InitialHoldNone: false, v1alpha1.InitialHoldPending: true}

var disruptionBudgets = map[string]bool{v1alpha1.DefaultDisruptionBudget: false, "Groups": true}

// longest is a day in seconds, the longest time that can be configured.
const longest = 86400

// validateGates refuses a name that this version does not know: what it would switch on is missing.
func validateGates(gates map[string]bool, at *field.Path) (faults field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		faults = append(faults, unless(slices.Contains(v1alpha1.FeatureGates(), name), field.Invalid(at.Key(name), gates[name],
			"this version has no such feature gate; leave it out, or use one of: "+strings.Join(v1alpha1.FeatureGates(), ", ")))...)
	}
	return faults
}

// ValidateConfig returns all faults of a configuration that has its defaults, each with the path of its field.
func ValidateConfig(c *v1alpha1.Configuration) field.ErrorList {
	var (
		l, election   = c.LeaderElection, field.NewPath("leaderElection")
		h, health     = c.Health, field.NewPath("health")
		t, tls        = ptr.Deref(c.TLS, v1alpha1.TLS{}), field.NewPath("tls")
		m, management = c.InternalCertManagement, field.NewPath("internalCertManagement")
		r, connection = c.ClientConnection, field.NewPath("clientConnection")
		p, protection = c.Protection, field.NewPath("protection")

		leastDeadline   = time.Duration(leaderelection.JitterFactor * float64(l.RetryPeriod.Duration))
		_, badDeadline  = workload.ParseProgressDeadline(c.Rollout.ProgressDeadline)
		_, badSuites    = cliflag.TLSCipherSuites(t.CipherSuites)
		_, badAuthority = certutil.ParseCertsPEM([]byte(c.Webhook.ClientCA))
	)
	return slices.Concat(
		invalid(field.NewPath("webhook", "port"), *c.Webhook.Port, validation.IsValidPortNum(int(*c.Webhook.Port))...),
		unless(l.ResourceLock == v1alpha1.DefaultResourceLock, field.NotSupported(election.Child("resourceLock"), l.ResourceLock, []string{v1alpha1.DefaultResourceLock})),
		invalid(election.Child("resourceName"), l.ResourceName, validation.IsDNS1123Subdomain(l.ResourceName)...),
		unless(l.LeaseDuration.Duration >= time.Second, field.Invalid(election.Child("leaseDuration"), l.LeaseDuration.Duration.String(), "must be 1s at least: a lease counts whole seconds")),
		unless(l.RetryPeriod.Duration > 0, field.Invalid(election.Child("retryPeriod"), l.RetryPeriod.Duration.String(), "must be greater than 0")),
		unless(l.RenewDeadline.Duration > leastDeadline, field.Invalid(election.Child("renewDeadline"), l.RenewDeadline.Duration.String(), "must be longer than 1.2 times retryPeriod, "+leastDeadline.String())),
		unless(l.LeaseDuration.Duration > l.RenewDeadline.Duration, field.Invalid(election.Child("leaseDuration"), l.LeaseDuration.Duration.String(), "must be longer than renewDeadline, "+l.RenewDeadline.Duration.String())),
		unless(strings.HasPrefix(h.ReadinessEndpointName, "/"), field.Invalid(health.Child("readinessEndpointName"), h.ReadinessEndpointName, "must begin with /")),
		unless(strings.HasPrefix(h.LivenessEndpointName, "/"), field.Invalid(health.Child("livenessEndpointName"), h.LivenessEndpointName, "must begin with /")),
		unless(h.ReadinessEndpointName != h.LivenessEndpointName, field.Duplicate(health.Child("livenessEndpointName"), h.LivenessEndpointName)),
		unless(slices.Contains([]string{"", tls12, tls13}, t.MinVersion), field.Invalid(tls.Child("minVersion"), t.MinVersion, "invalid minVersion. Please use VersionTLS12 or VersionTLS13")),
		unless(len(t.CipherSuites) == 0 || t.MinVersion != tls13, field.Invalid(tls.Child("cipherSuites"), t.CipherSuites, "cipher suites may not be specified when minVersion is 'VersionTLS13'")),
		unless(badSuites == nil, field.Invalid(tls.Child("cipherSuites"), t.CipherSuites, "must be Go's names of TLS 1.2 cipher suites")),
		unless(badSuites != nil || !slices.ContainsFunc(t.CipherSuites, isPlain), field.Invalid(tls.Child("cipherSuites"), t.CipherSuites,
			"must be suites that authenticate what they encrypt: those with GCM or CHACHA20 in their names, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")),
		unless(c.Webhook.ClientCA == "" || badAuthority == nil, field.Invalid(field.NewPath("webhook", "clientCA"), "", "must be certificates in PEM")),
		invalid(management.Child("webhookServiceName"), *m.WebhookServiceName, validation.IsDNS1035Label(*m.WebhookServiceName)...),
		invalid(management.Child("webhookSecretName"), *m.WebhookSecretName, validation.IsDNS1123Subdomain(*m.WebhookSecretName)...),
		validateWord(c.Disruption.Budget, disruptionBudgets, field.NewPath("disruption", "budget")),
		unless(c.Rollout.ProgressDeadline == "" || badDeadline == nil, field.Invalid(field.NewPath("rollout", "progressDeadline"), c.Rollout.ProgressDeadline, fmt.Sprint(badDeadline))),
		validateGates(c.FeatureGates, field.NewPath("featureGates")),
		validateGangs(c.GangSchedulingManagement, field.NewPath("gangSchedulingManagement", "schedulerProvider")),
		unless(*r.QPS > 0, field.Invalid(connection.Child("qps"), *r.QPS, "must be greater than 0")),
		unless(*r.Burst > 0, field.Invalid(connection.Child("burst"), *r.Burst, "must be greater than 0")),
		validateWord(p.Mode, protectionModes, protection.Child("mode")),
		validateWord(p.Idle, idlePolicies, protection.Child("idle")),
		validateWord(p.InitialHold, initialHolds, protection.Child("initialHold")),
		invalid(protection.Child("graceSeconds"), *p.GraceSeconds, validation.IsInRange(int(*p.GraceSeconds), 0, longest)...),
		invalid(protection.Child("releaseTTLSeconds"), *p.ReleaseTTLSeconds, validation.IsInRange(int(*p.ReleaseTTLSeconds), 1, longest)...),
		validateNamespaces(p.ExemptNamespaces, protection.Child("exemptNamespaces")),
		validateKinds(p.Kinds, protection.Child("kinds")),
	)
}

// invalid returns a fault for each message.
func invalid(path *field.Path, value any, messages ...string) (faults field.ErrorList) {
	for _, message := range messages {
		faults = append(faults, field.Invalid(path, value, message))
	}
	return faults
}

// unless returns a fault if a rule does not hold.
func unless(holds bool, fault *field.Error) field.ErrorList {
	if holds {
		return nil
	}
	return field.ErrorList{fault}
}

func validateGangs(g *v1alpha1.GangSchedulingManagement, path *field.Path) field.ErrorList {
	if g == nil {
		return nil
	}
	provider := ptr.Deref(g.SchedulerProvider, "")
	if provider == "" {
		return field.ErrorList{field.Required(path, "must be set when gang scheduling is enabled")}
	}
	providers := []string{gang.Kubernetes, gang.Volcano}
	return unless(slices.Contains(providers, provider), field.NotSupported(path, provider, providers))
}

func validateWord[W ~string, M any](word W, known map[W]M, path *field.Path) field.ErrorList {
	_, isKnown := known[word]
	return unless(isKnown, field.NotSupported(path, word, slices.Sorted(maps.Keys(known))))
}

func validateNamespaces(names []string, path *field.Path) (faults field.ErrorList) {
	for i, name := range names {
		faults = append(faults, invalid(path.Index(i), name, validation.IsDNS1123Label(name)...)...)
		faults = append(faults, unless(!slices.Contains(names[:i], name), field.Duplicate(path.Index(i), name))...)
	}
	return faults
}

// builtIn are the kinds whose PVCs are known by code. A description would make a second
// holder of the same workload that knows less.
var builtIn = []schema.GroupKind{
	{Kind: "Pod"},
	{Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "ReplicaSet"}, {Group: "apps", Kind: "DaemonSet"},
	{Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"},
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"},
}

// replicationController is the only workload of the core group, which has Secrets as well.
const replicationController = "ReplicationController"

func validateKinds(kinds []v1alpha1.WorkloadKind, path *field.Path) (faults field.ErrorList) {
	var seen []schema.GroupKind
	for i, k := range kinds {
		described, at := workloads.KindOf(k), path.Index(i)
		group := described.GroupKind()
		switch {
		case slices.Contains(builtIn, group):
			faults = append(faults, field.Invalid(at.Child("kind"), k.Kind, "is built in; leave it out"))
		case slices.Contains(seen, group):
			faults = append(faults, field.Duplicate(at.Child("kind"), group.String()))
		}
		seen = append(seen, group)
		faults = append(faults, validateKind(k, described, at)...)
	}
	return faults
}

func validateKind(k v1alpha1.WorkloadKind, described workloads.Kind, path *field.Path) field.ErrorList {
	if k.APIVersion == "" || k.Kind == "" {
		return field.ErrorList{field.Required(path, "apiVersion and kind name the workload, as in its manifest")}
	}
	if _, err := schema.ParseGroupVersion(k.APIVersion); err != nil {
		return field.ErrorList{field.Invalid(path.Child("apiVersion"), k.APIVersion, "must be group/version")}
	}
	if described.Group == "" && described.Kind != replicationController {
		return field.ErrorList{field.Invalid(path.Child("kind"), k.Kind, "is no workload: in apiVersion "+k.APIVersion+", only "+replicationController+" is")}
	}
	if err := described.Check(); err != nil {
		return field.ErrorList{field.Invalid(path, k.Kind, err.Error())}
	}
	return slices.Concat(
		validatePaths(k.PodTemplates, path.Child("podTemplates")),
		validatePaths(k.ClaimTemplates, path.Child("claimTemplates")),
		validatePath(k.Replicas, path.Child("replicas")),
		validatePath(k.Suspend, path.Child("suspend")),
	)
}

// fieldPath matches names of fields, or "*", separated by dots.
var fieldPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.([A-Za-z_][A-Za-z0-9_-]*|\*))*$`)

func validatePaths(paths []string, at *field.Path) (faults field.ErrorList) {
	for i, p := range paths {
		if p == "" {
			faults = append(faults, field.Required(at.Index(i), "must not be empty; leave it out"))
		}
		faults = append(faults, validatePath(p, at.Index(i))...)
	}
	return faults
}

func validatePath(p string, at *field.Path) field.ErrorList {
	return unless(p == "" || fieldPath.MatchString(p), field.Invalid(at, p, `must be names of fields separated by dots, and "*" for every element of a list, such as spec.jobs.*.template`))
}
