package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/operator"
)

// shape is what is to be installed: by choice, and by what the API server knows.
type shape struct {
	Options
	config   *v1alpha1.Configuration
	settings operator.ProtectionSettings
	// protects tells whether claims in use are protected.
	protects bool
	// lacks are the kinds of policies that the API server does not know.
	lacks []string
}

func (o Options) shape(lacks []string) (shape, error) {
	settings, config, err := o.settings()
	if err != nil {
		return shape{}, err
	}
	s := shape{Options: o, config: config, settings: settings, lacks: lacks}
	s.protects = *config.Protection.Enabled && !o.NoProtection
	if o.ProtectOnly && !s.protects {
		return s, errors.New("--protect-only with protection switched off leaves nothing to install; drop one of them")
	}
	if o.Image != "" {
		err = fixed(config)
	}
	return s, err
}

// fixed refuses a configuration that the manifests do not go with.
func fixed(c *v1alpha1.Configuration) error {
	for field, differs := range map[string]bool{
		"webhook.port":                              *c.Webhook.Port != v1alpha1.DefaultWebhookPort,
		"health.healthProbeBindAddress":             c.Health.HealthProbeBindAddress != v1alpha1.DefaultHealthProbeAddress,
		"health.readinessEndpointName":              c.Health.ReadinessEndpointName != v1alpha1.DefaultReadinessEndpoint,
		"health.livenessEndpointName":               c.Health.LivenessEndpointName != v1alpha1.DefaultLivenessEndpoint,
		"internalCertManagement.webhookServiceName": *c.InternalCertManagement.WebhookServiceName != v1alpha1.DefaultWebhookServiceName,
		"internalCertManagement.webhookSecretName":  *c.InternalCertManagement.WebhookSecretName != v1alpha1.DefaultWebhookSecretName,
	} {
		if differs {
			return fmt.Errorf("configuration: %s: the Deployment and the Services of install go with the default alone; leave it out, or run the operator from manifests of your own", field)
		}
	}
	return nil
}

// wants leaves out the operator where no image is given, the Service of the
// webhooks where nobody calls it, and parts that were not chosen.
func (s shape) wants(u *unstructured.Unstructured) bool {
	if ofProtection(u) {
		return s.wantsOfProtection(u)
	}
	switch {
	case s.ProtectOnly && ofSets(u), isPolicy(u) && slices.Contains(s.lacks, operator.ValidatingPolicy):
		return false
	case u.GetKind() == "Deployment", u.GetName() == "lws-controller-manager-metrics-service":
		return s.Image != ""
	case u.GetName() == "lws-webhook-service":
		return (s.WebhookURL == "" || s.Image != "") && !s.ProtectOnly
	case strings.HasPrefix(u.GetName(), "lws-certificates-"):
		return !s.ProtectOnly
	}
	return true
}

func (s shape) wantsOfProtection(u *unstructured.Unstructured) bool {
	kind := strings.TrimSuffix(u.GetKind(), "Binding")
	switch {
	case !s.protects, slices.Contains(s.lacks, kind):
		return false
	case strings.HasPrefix(u.GetName(), "refuse-forged"):
		return s.isOlder()
	case strings.HasPrefix(u.GetName(), "gated"):
		return !s.isOlder() // without the gate, it would refuse all pods of mode strict
	}
	return s.wantsPolicy(u.GetName())
}

// isOlder reports whether the API server has no mutating policies.
func (s shape) isOlder() bool { return slices.Contains(s.lacks, operator.MutatingPolicy) }

// wantsPolicy leaves out policies that were not chosen.
func (s shape) wantsPolicy(name string) bool {
	switch {
	case takesPlaceOfBuiltIn(name):
		return s.settings.Alone
	case strings.HasPrefix(name, "initial-hold"):
		return s.settings.InitialHold
	}
	return true
}

// ofSets tells what is there for LeaderWorkerSets alone.
func ofSets(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition" || isWebhooks(u) || isPolicy(u) ||
		strings.HasPrefix(u.GetName(), "lws-manager-") || strings.HasPrefix(u.GetName(), "lws-leaderworkerset-")
}

// isPolicy reports whether an object is the policy that protects labels, or its binding.
func isPolicy(u *unstructured.Unstructured) bool { return u.GetName() == "lockstep-labels" }

// adapt writes into a manifest what only the user knows.
func (s shape) adapt(u *unstructured.Unstructured) error {
	if ofProtection(u) {
		if err := chooseProtection(u, s.settings); err != nil {
			return fmt.Errorf("%s: %w", title(u), err)
		}
	}
	if s.ProtectOnly {
		u.Object = renamed(u.Object).(map[string]any)
	}
	switch {
	case u.GetKind() == "Deployment":
		return s.setOperator(u)
	case s.WebhookURL != "" && isWebhooks(u):
		return setURL(u, s.WebhookURL)
	}
	return nil
}

// standalone is what protection by itself calls what it has in common with an
// installation for LeaderWorkerSets, so that the two keep out of each other's way,
// whoever the other's is.
var standalone = map[string]string{
	namespaceName:                            "lockstep-system",
	deploymentName:                           "lockstep-controller-manager",
	"lws-controller-manager-metrics-service": "lockstep-metrics-service",
	"lws-proxy-role":                         "lockstep-proxy-role",
	"lws-proxy-rolebinding":                  "lockstep-proxy-rolebinding",
	"lws-metrics-reader":                     "lockstep-metrics-reader",
	"lws":                                    "lockstep",
}

// renamed is a manifest as protection by itself has it.
func renamed(in any) any {
	switch in := in.(type) {
	case map[string]any:
		for key, v := range in {
			in[key] = renamed(v)
		}
	case []any:
		for i, v := range in {
			in[i] = renamed(v)
		}
	case string:
		if name, ok := standalone[in]; ok {
			return name
		}
	}
	return in
}

// namespace is where the operator runs.
func (o Options) namespace() string {
	if o.ProtectOnly {
		return standalone[namespaceName]
	}
	return namespaceName
}

const (
	configMapName = v1alpha1.InstalledName
	configFile    = v1alpha1.InstalledKey
	configDir     = "/etc/lockstep"
	// configLabel has a Deployment replace its pods when the configuration changes,
	// and tells pods of the one from pods of another.
	configLabel = "lockstep.dev/configuration"
)

// configMap carries the configuration to the operator, comments and all.
func (s shape) configMap() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{configFile: string(s.Config)}}}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace(namespaceName)
	u.SetName(configMapName)
	u.SetLabels(map[string]string{nameLabel: "lws", "app.kubernetes.io/instance": "lws"})
	return u
}

// arguments are what the operator is started with, beyond what the manifest says.
func (s shape) arguments() (args []string) {
	if len(s.Config) > 0 {
		args = append(args, "--config="+configDir+"/"+configFile)
	}
	if s.ProtectOnly {
		args = append(args, "--protect-only")
	}
	if s.NoProtection {
		args = append(args, "--protection=false")
	}
	return args
}

// mark tells one configuration from another.
func (s shape) mark() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s", s.arguments(), s.Config))
	return hex.EncodeToString(sum[:8])
}
