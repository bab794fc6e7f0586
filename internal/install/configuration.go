package install

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/operator"
)

// OthersConfigMap is where another implementation keeps its configuration, under a key.
const (
	OthersConfigMap = "lws-manager-config"
	othersKey       = "controller_manager_config.yaml"
)

// inherit takes over the configuration of an implementation that --image replaces, unless the
// user gives one. It names what does not apply, and leaves it out.
func (c *cluster) inherit(ctx context.Context) error {
	if c.Image == "" || c.ProtectOnly || len(c.Config) > 0 {
		return nil
	}
	found, err := Live(ctx, c.client, Bare("v1", "ConfigMap", namespaceName, OthersConfigMap))
	if err != nil || found == nil {
		return err
	}
	text, _, _ := unstructured.NestedString(found.Object, "data", othersKey)
	config, dropped, err := applicable(text)
	if err != nil {
		return fmt.Errorf("%s holds no configuration that can be taken over: %w; nothing was installed; give one: --config FILE", title(found), err)
	}
	c.Config = config
	c.say("%s is the configuration; to have another: --config FILE", title(found))
	for _, path := range dropped {
		c.say("%s: %s does not apply, and is left out", title(found), path)
	}
	return nil
}

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// applicable returns a configuration without the paths that do not apply to an operator that
// --image deploys, and these paths.
func applicable(text string) (config []byte, dropped []string, err error) {
	all := map[string]any{}
	if err := sigsyaml.UnmarshalStrict([]byte(text), &all); err != nil {
		return nil, nil, err
	}
	_, faults := operator.ParseConfig([]byte(text))
	for _, found := range unknownField.FindAllStringSubmatch(fmt.Sprint(faults), -1) {
		dropped = append(dropped, found[1])
	}
	parsed, err := operator.ParseConfig(without(all, dropped))
	if err != nil {
		return nil, nil, err
	}
	for name := range parsed.FeatureGates {
		if !slices.Contains(v1alpha1.FeatureGates(), name) {
			dropped = append(dropped, "featureGates."+name)
		}
	}
	if !*parsed.InternalCertManagement.Enable { // the Deployment mounts no certificate
		dropped = append(dropped, "internalCertManagement.enable")
	}
	dropped = append(dropped, unfit(parsed)...)
	slices.Sort(dropped)
	return without(all, dropped), dropped, nil
}

// without removes paths from a configuration, and returns its text.
func without(all map[string]any, paths []string) []byte {
	for _, path := range paths {
		unstructured.RemoveNestedField(all, strings.Split(path, ".")...)
	}
	return must(sigsyaml.Marshal(all))
}

// unfit returns the paths of a configuration that the Deployment and the Services of install do
// not fit. Behind a wrong port the webhooks would refuse every set.
func unfit(c *v1alpha1.Configuration) (paths []string) {
	byDefault := must(operator.ParseConfig(nil))
	for path, differs := range map[string]bool{
		"webhook.port":                              *c.Webhook.Port != *byDefault.Webhook.Port,
		"health.healthProbeBindAddress":             c.Health.HealthProbeBindAddress != byDefault.Health.HealthProbeBindAddress,
		"health.readinessEndpointName":              c.Health.ReadinessEndpointName != byDefault.Health.ReadinessEndpointName,
		"health.livenessEndpointName":               c.Health.LivenessEndpointName != byDefault.Health.LivenessEndpointName,
		"internalCertManagement.webhookServiceName": *c.InternalCertManagement.WebhookServiceName != v1alpha1.DefaultWebhookServiceName,
		"internalCertManagement.webhookSecretName":  *c.InternalCertManagement.WebhookSecretName != v1alpha1.DefaultWebhookSecretName,
	} {
		if differs {
			paths = append(paths, path)
		}
	}
	return paths
}
