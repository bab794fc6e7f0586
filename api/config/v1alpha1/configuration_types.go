package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbase "k8s.io/component-base/config/v1alpha1"
)

// Configuration is how one operator is to run. Every field may be left out;
// SetDefaults says what then holds. An explicit flag overrides a field.
//
// +kubebuilder:object:root=true
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// Webhook is where admission requests are answered.
	Webhook Webhook `json:"webhook,omitempty"`

	// LeaderElection is how replicas agree on the one that acts: leaderElect (default
	// true), leaseDuration (15s), renewDeadline (10s), retryPeriod (2s), resourceLock
	// (leases, the only one) and resourceName (b8b2488c.x-k8s.io). leaseDuration must be
	// longer than renewDeadline, and this longer than 1.2 times retryPeriod.
	// resourceNamespace is not used: the lease always lies in the operator's own namespace.
	LeaderElection componentbase.LeaderElectionConfiguration `json:"leaderElection,omitempty"`

	// Metrics is where metrics are served.
	Metrics Metrics `json:"metrics,omitempty"`

	// Health is where the probes are answered.
	Health Health `json:"health,omitempty"`

	// TLS restricts the handshakes of the webhook server and the metrics server.
	TLS *TLS `json:"tls,omitempty"`

	// InternalCertManagement is about the webhook certificate the operator makes
	// itself.
	InternalCertManagement InternalCertManagement `json:"internalCertManagement,omitempty"`

	// GangSchedulingManagement names the scheduler that places groups whole.
	GangSchedulingManagement *GangSchedulingManagement `json:"gangSchedulingManagement,omitempty"`

	// ClientConnection bounds the requests sent to the API server.
	ClientConnection ClientConnection `json:"clientConnection,omitempty"`

	// FeatureGates switch features by name. WorkloadAwareScheduling admits sets with
	// spec.scheduling, which the scheduler in gangSchedulingManagement places.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// Disruption limits how many groups of a set may be evicted at a time.
	Disruption Disruption `json:"disruption,omitempty"`

	// Rollout is how long sets may make no progress.
	Rollout Rollout `json:"rollout,omitempty"`

	// Protection is how PersistentVolumeClaims in use are kept from being lost.
	Protection Protection `json:"protection,omitempty"`
}

// Webhook is the address and the files of the admission server.
type Webhook struct {
	// Port is the TCP port, 1 to 65535. Default 9443.
	Port *int32 `json:"port,omitempty"`

	// Host is the address listened on; empty is all of them. Default empty.
	Host string `json:"host,omitempty"`

	// CertDir is the directory of tls.crt and tls.key, read when
	// internalCertManagement.enable is false. Default
	// /tmp/k8s-webhook-server/serving-certs.
	CertDir string `json:"certDir,omitempty"`

	// ClientCA are certificates in PEM. The server refuses each client without a certificate
	// that one of them signed. Default empty: any client may ask.
	ClientCA string `json:"clientCA,omitempty"`
}

// Metrics is the address of the metrics server.
type Metrics struct {
	// BindAddress is host:port; "0" turns the server off. Default :8443.
	BindAddress string `json:"bindAddress,omitempty"`
}

// Health is the address and the paths of the probes.
type Health struct {
	// HealthProbeBindAddress is host:port; "0" turns the server off. Default :8081.
	HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`

	// ReadinessEndpointName is the path of the readiness probe. Default /readyz.
	ReadinessEndpointName string `json:"readinessEndpointName,omitempty"`

	// LivenessEndpointName is the path of the liveness probe. Default /healthz.
	LivenessEndpointName string `json:"livenessEndpointName,omitempty"`
}

// TLS restricts what a client may negotiate.
type TLS struct {
	// MinVersion is VersionTLS12, VersionTLS13 or empty: VersionTLS12.
	MinVersion string `json:"minVersion,omitempty"`

	// CipherSuites are Go's names of TLS 1.2 cipher suites with GCM or CHACHA20; empty
	// is all of them. Not allowed together with VersionTLS13, which has no choice.
	CipherSuites []string `json:"cipherSuites,omitempty"`
}

// InternalCertManagement says whether the operator makes, renews and publishes
// its own webhook certificate, and under which names.
type InternalCertManagement struct {
	// Enable turns it on. Default true.
	Enable *bool `json:"enable,omitempty"`

	// WebhookServiceName is the Service the API server calls, a DNS-1035 label.
	// Default lws-webhook-service.
	WebhookServiceName *string `json:"webhookServiceName,omitempty"`

	// WebhookSecretName is the Secret in which an earlier version kept its
	// certificate, a DNS-1123 subdomain. Default lws-webhook-server-cert.
	WebhookSecretName *string `json:"webhookSecretName,omitempty"`
}

// GangSchedulingManagement names the scheduler that places groups whole.
type GangSchedulingManagement struct {
	// SchedulerProvider is "volcano", or "kubernetes" for Kubernetes' own scheduler, which
	// places sets with spec.scheduling only. Required when the block is present.
	SchedulerProvider *string `json:"schedulerProvider,omitempty"`
}

// Disruption limits how many groups of a set may be evicted at a time.
type Disruption struct {
	// Budget is None or Groups, for sets without the annotation lockstep.dev/disruption-budget.
	// Default None.
	Budget string `json:"budget,omitempty"`
}

// Rollout is how long sets may make no progress.
type Rollout struct {
	// ProgressDeadline is off or a duration from 1s to 168h, for sets without the annotation
	// lockstep.dev/progress-deadline. If it is empty, new sets are given 30m, and others have none.
	ProgressDeadline string `json:"progressDeadline,omitempty"`
}

// ClientConnection bounds the requests sent to the API server.
type ClientConnection struct {
	// QPS is the sustained rate in requests per second. Default 500.
	QPS *float32 `json:"qps,omitempty"`

	// Burst is how many requests may come at once. Default 500.
	Burst *int32 `json:"burst,omitempty"`
}
