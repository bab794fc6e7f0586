package v1alpha1

import (
	"cmp"

	componentbase "k8s.io/component-base/config/v1alpha1"
)

// What holds for a field that is left out.
const (
	DefaultWebhookPort        int32   = 9443
	DefaultWebhookCertDir             = "/tmp/k8s-webhook-server/serving-certs"
	DefaultResourceLock               = "leases"
	DefaultResourceName               = "b8b2488c.x-k8s.io"
	DefaultMetricsBindAddress         = ":8443"
	DefaultHealthProbeAddress         = ":8081"
	DefaultReadinessEndpoint          = "/readyz"
	DefaultLivenessEndpoint           = "/healthz"
	DefaultWebhookServiceName         = "lws-webhook-service"
	DefaultWebhookSecretName          = "lws-webhook-server-cert"
	DefaultQPS                float32 = 500
	DefaultBurst              int32   = 500
	DefaultDisruptionBudget           = "None"
	DefaultProtectionMode             = ProtectionBarrier
	DefaultIdlePolicy                 = IdleWarn
	DefaultGraceSeconds       int32   = 300
	DefaultReleaseTTLSeconds  int32   = 3600
	DefaultExemptNamespace            = "kube-system"
)

// WorkloadAwareScheduling is the feature gate of spec.scheduling.
const WorkloadAwareScheduling = "WorkloadAwareScheduling"

// FeatureGates returns the names of all feature gates.
func FeatureGates() []string { return []string{WorkloadAwareScheduling} }

// SetDefaults fills every field that is left out. GangSchedulingManagement and
// TLS stay absent: their absence means something.
func SetDefaults(c *Configuration) {
	c.Webhook.Port = cmp.Or(c.Webhook.Port, new(DefaultWebhookPort))
	c.Webhook.CertDir = cmp.Or(c.Webhook.CertDir, DefaultWebhookCertDir)
	c.LeaderElection.ResourceLock = cmp.Or(c.LeaderElection.ResourceLock, DefaultResourceLock)
	componentbase.RecommendedDefaultLeaderElectionConfiguration(&c.LeaderElection)
	c.LeaderElection.ResourceName = cmp.Or(c.LeaderElection.ResourceName, DefaultResourceName)
	c.Metrics.BindAddress = cmp.Or(c.Metrics.BindAddress, DefaultMetricsBindAddress)
	c.Health.HealthProbeBindAddress = cmp.Or(c.Health.HealthProbeBindAddress, DefaultHealthProbeAddress)
	c.Health.ReadinessEndpointName = cmp.Or(c.Health.ReadinessEndpointName, DefaultReadinessEndpoint)
	c.Health.LivenessEndpointName = cmp.Or(c.Health.LivenessEndpointName, DefaultLivenessEndpoint)
	m := &c.InternalCertManagement
	m.Enable = cmp.Or(m.Enable, new(true))
	m.WebhookServiceName = cmp.Or(m.WebhookServiceName, new(DefaultWebhookServiceName))
	m.WebhookSecretName = cmp.Or(m.WebhookSecretName, new(DefaultWebhookSecretName))
	c.ClientConnection.QPS = cmp.Or(c.ClientConnection.QPS, new(DefaultQPS))
	c.ClientConnection.Burst = cmp.Or(c.ClientConnection.Burst, new(DefaultBurst))
	c.Disruption.Budget = cmp.Or(c.Disruption.Budget, DefaultDisruptionBudget)
	p := &c.Protection
	p.Enabled = cmp.Or(p.Enabled, new(true))
	p.Mode = cmp.Or(p.Mode, DefaultProtectionMode)
	p.Idle = cmp.Or(p.Idle, DefaultIdlePolicy)
	p.InitialHold = cmp.Or(p.InitialHold, InitialHoldNone)
	p.GraceSeconds = cmp.Or(p.GraceSeconds, new(DefaultGraceSeconds))
	p.ReleaseTTLSeconds = cmp.Or(p.ReleaseTTLSeconds, new(DefaultReleaseTTLSeconds))
	if p.ExemptNamespaces == nil {
		p.ExemptNamespaces = []string{DefaultExemptNamespace}
	}
}
