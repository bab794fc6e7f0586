package v1alpha1

import (
	"cmp"

	componentbase "k8s.io/component-base/config/v1alpha1"
)

// Defaults that others name as well. SetDefaults has all.
const (
	DefaultResourceLock       = "leases"
	DefaultResourceName       = "b8b2488c.x-k8s.io"
	DefaultWebhookServiceName = "lws-webhook-service"
	DefaultWebhookSecretName  = "lws-webhook-server-cert"
	DefaultDisruptionBudget   = "None"
	DefaultExemptNamespace    = "kube-system"
)

// WorkloadAwareScheduling is the feature gate of spec.scheduling.
const WorkloadAwareScheduling = "WorkloadAwareScheduling"

// FeatureGates returns the names of all feature gates.
func FeatureGates() []string { return []string{WorkloadAwareScheduling} }

// SetDefaults fills every field that is left out. GangSchedulingManagement and
// TLS stay absent: their absence means something.
func SetDefaults(c *Configuration) {
	c.Webhook.Port = cmp.Or(c.Webhook.Port, new(int32(9443)))
	c.Webhook.CertDir = cmp.Or(c.Webhook.CertDir, "/tmp/k8s-webhook-server/serving-certs")
	c.LeaderElection.ResourceLock = cmp.Or(c.LeaderElection.ResourceLock, DefaultResourceLock)
	componentbase.RecommendedDefaultLeaderElectionConfiguration(&c.LeaderElection)
	c.LeaderElection.ResourceName = cmp.Or(c.LeaderElection.ResourceName, DefaultResourceName)
	c.Metrics.BindAddress = cmp.Or(c.Metrics.BindAddress, ":8443")
	c.Health.HealthProbeBindAddress = cmp.Or(c.Health.HealthProbeBindAddress, ":8081")
	c.Health.ReadinessEndpointName = cmp.Or(c.Health.ReadinessEndpointName, "/readyz")
	c.Health.LivenessEndpointName = cmp.Or(c.Health.LivenessEndpointName, "/healthz")
	m := &c.InternalCertManagement
	m.Enable = cmp.Or(m.Enable, new(true))
	m.WebhookServiceName = cmp.Or(m.WebhookServiceName, new(DefaultWebhookServiceName))
	m.WebhookSecretName = cmp.Or(m.WebhookSecretName, new(DefaultWebhookSecretName))
	c.ClientConnection.QPS = cmp.Or(c.ClientConnection.QPS, new(float32(500)))
	c.ClientConnection.Burst = cmp.Or(c.ClientConnection.Burst, new(int32(500)))
	c.Disruption.Budget = cmp.Or(c.Disruption.Budget, DefaultDisruptionBudget)
	p := &c.Protection
	p.Enabled = cmp.Or(p.Enabled, new(true))
	p.Mode = cmp.Or(p.Mode, ProtectionBarrier)
	p.Idle = cmp.Or(p.Idle, IdleWarn)
	p.InitialHold = cmp.Or(p.InitialHold, InitialHoldNone)
	p.GraceSeconds = cmp.Or(p.GraceSeconds, new(int32(300)))
	p.ReleaseTTLSeconds = cmp.Or(p.ReleaseTTLSeconds, new(int32(3600)))
	if p.ExemptNamespaces == nil {
		p.ExemptNamespaces = []string{DefaultExemptNamespace}
	}
}
