package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/operator"
)

const (
	namespaceName  = "lws-system"
	deploymentName = "lws-controller-manager"
	// An installation for LeaderWorkerSets has the first ClusterRole, and every installation
	// the second.
	managerRole = "lws-manager-role"
	proxyRole   = "lws-proxy-role"

	configMapName = v1alpha1.InstalledName
	configFile    = v1alpha1.InstalledKey
	configDir     = "/etc/lockstep"
	// configLabel makes a Deployment replace its pods when the configuration changes, and
	// tells the pods of one configuration from those of another.
	configLabel = "lockstep.dev/configuration"
	// noConfiguration is the ConfigMap of an operator that runs with the defaults.
	noConfiguration = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"
)

// shape is what to install: by choice, and by what the API server serves.
type shape struct {
	Options
	settings operator.ProtectionSettings
	// protects reports whether PVCs in use are protected.
	protects bool
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
	s := shape{
		Options: o, lacks: lacks, settings: operator.SettingsOf(config.Protection, o.namespace()),
		protects: *config.Protection.Enabled && !o.NoProtection,
	}
	if o.ProtectOnly && !s.protects {
		return s, errors.New("--protect-only with protection switched off leaves nothing to install; drop one of them")
	}
	if o.Image != "" {
		err = fixed(config)
	}
	return s, err
}

// fixed refuses a configuration that the manifests do not support.
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

// whenAnnotation lists the conditions under which a manifest is installed.
const whenAnnotation = "lockstep.dev/install-when"

// wants reports whether an object is part of this installation.
func (s shape) wants(u *unstructured.Unstructured) bool {
	holds := map[string]bool{
		"sets":        !s.ProtectOnly,
		"image":       s.Image != "",
		"service":     s.WebhookURL == "" || s.Image != "",
		"alone":       s.settings.Alone,
		"initialHold": s.settings.InitialHold,
		"older":       s.isOlder(),
		"newer":       !s.isOlder(), // without the gate, gated refuses all pods of mode strict
	}
	for when := range strings.FieldsSeq(u.GetAnnotations()[whenAnnotation]) {
		if !holds[when] {
			return false
		}
	}
	isServed := !slices.Contains(s.lacks, strings.TrimSuffix(u.GetKind(), "Binding"))
	return isServed && (s.protects || !ofProtection(u)) && (!s.ProtectOnly || u.GetKind() != "CustomResourceDefinition")
}

// isOlder reports whether the API server has no mutating policies.
func (s shape) isOlder() bool { return slices.Contains(s.lacks, operator.MutatingPolicy) }

// isLabelPolicy reports whether an object is the policy that protects labels, or its binding.
func isLabelPolicy(u *unstructured.Unstructured) bool { return u.GetName() == "lockstep-labels" }

// render writes the user's choices into a manifest.
func (s shape) render(u *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", whenAnnotation)
	if len(u.GetAnnotations()) == 0 {
		u.SetAnnotations(nil)
	}
	if ofProtection(u) {
		if err := chooseProtection(u, s.settings); err != nil {
			return err
		}
	}
	if s.ProtectOnly {
		if err := rename(u); err != nil {
			return err
		}
	}
	switch {
	case u.GetKind() == "Deployment":
		return s.setOperator(u)
	case s.WebhookURL != "" && isWebhooks(u):
		setURL(u, s.WebhookURL)
	}
	return nil
}

// setOperator writes image, arguments and configuration into the Deployment.
func (s shape) setOperator(u *unstructured.Unstructured) error {
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, deployment); err != nil {
		return err
	}
	template, args := &deployment.Spec.Template, s.arguments()
	operator := &template.Spec.Containers[0]
	operator.Image, operator.Args = s.Image, append(operator.Args, args...)
	if len(args) > 0 {
		template.Labels[configLabel] = s.mark()
	}
	if len(s.Config) > 0 {
		operator.VolumeMounts = []corev1.VolumeMount{{Name: configMapName, MountPath: configDir, ReadOnly: true}}
		configMap := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMapName}}
		template.Spec.Volumes = []corev1.Volume{{Name: configMapName, VolumeSource: corev1.VolumeSource{ConfigMap: configMap}}}
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deployment)
	if err != nil {
		return err
	}
	u.Object["spec"] = object["spec"]
	return nil
}

// configMap returns the configuration of the operator. Without one it holds the defaults:
// kubectl lockstep why reads it.
func (s shape) configMap() *unstructured.Unstructured {
	u := object("v1", "ConfigMap", namespaceName, configMapName)
	text := string(s.Config)
	if text == "" {
		text = noConfiguration
	}
	u.Object["data"] = map[string]any{configFile: text}
	return u
}

// arguments are those that the manifest does not have.
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

// mark identifies a configuration.
func (s shape) mark() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s", s.arguments(), s.Config))
	return hex.EncodeToString(sum[:8])
}

// standalone are the names that an installation of protection alone has instead, so that it
// stands beside any installation for LeaderWorkerSets.
var standalone = map[string]string{
	namespaceName:                            "lockstep-system",
	deploymentName:                           "lockstep-controller-manager",
	"lws-controller-manager-metrics-service": "lockstep-metrics-service",
	proxyRole:                                "lockstep-proxy-role",
	"lws-proxy-rolebinding":                  "lockstep-proxy-rolebinding",
	"lws-metrics-reader":                     "lockstep-metrics-reader",
	setsLabel:                                standaloneLabel,
}

// rename gives a manifest the names of protection alone.
func rename(u *unstructured.Unstructured) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	var pairs []string
	for from, to := range standalone {
		pairs = append(pairs, strconv.Quote(from), strconv.Quote(to))
	}
	return u.UnmarshalJSON([]byte(strings.NewReplacer(pairs...).Replace(string(text))))
}

// isStandalone reports whether an object has a name of protection alone, or protects PVCs.
func isStandalone(u *unstructured.Unstructured) bool {
	return u.GetLabels()[nameLabel] == standaloneLabel || u.GetNamespace() == standalone[namespaceName]
}

// namespace is where the operator runs.
func (o Options) namespace() string {
	if o.ProtectOnly {
		return standalone[namespaceName]
	}
	return namespaceName
}
