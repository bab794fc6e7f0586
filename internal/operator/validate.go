package operator

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/leaderelection"
	cliflag "k8s.io/component-base/cli/flag"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/gang"
)

// ValidateConfig returns all faults of a configuration that has its defaults, each with the
// path of its field.
func ValidateConfig(c *v1alpha1.Configuration) field.ErrorList {
	return slices.Concat(
		validateWebhook(c.Webhook, field.NewPath("webhook")),
		validateLeaderElection(c.LeaderElection, field.NewPath("leaderElection")),
		validateAddress(c.Metrics.BindAddress, field.NewPath("metrics", "bindAddress")),
		validateHealth(c.Health, field.NewPath("health")),
		validateTLS(c.TLS, field.NewPath("tls")),
		validateCertManagement(c.InternalCertManagement, field.NewPath("internalCertManagement")),
		validateGangs(c.GangSchedulingManagement, field.NewPath("gangSchedulingManagement")),
		validateConnection(c.ClientConnection, field.NewPath("clientConnection")),
		validateProtection(c.Protection, field.NewPath("protection")),
	)
}

func validateWebhook(w v1alpha1.Webhook, path *field.Path) (faults field.ErrorList) {
	for _, message := range validation.IsValidPortNum(int(*w.Port)) {
		faults = append(faults, field.Invalid(path.Child("port"), *w.Port, message))
	}
	return faults
}

func validateLeaderElection(l v1alpha1.LeaderElection, path *field.Path) (faults field.ErrorList) {
	if l.ResourceLock != v1alpha1.DefaultResourceLock {
		faults = append(faults, field.NotSupported(path.Child("resourceLock"), l.ResourceLock, []string{v1alpha1.DefaultResourceLock}))
	}
	for _, message := range validation.IsDNS1123Subdomain(l.ResourceName) {
		faults = append(faults, field.Invalid(path.Child("resourceName"), l.ResourceName, message))
	}
	if l.LeaseDuration.Duration < time.Second {
		faults = append(faults, field.Invalid(path.Child("leaseDuration"), l.LeaseDuration.Duration.String(), "must be 1s at least: a lease counts whole seconds"))
	}
	if l.RetryPeriod.Duration <= 0 {
		faults = append(faults, field.Invalid(path.Child("retryPeriod"), l.RetryPeriod.Duration.String(), "must be greater than 0"))
	}
	if least := time.Duration(leaderelection.JitterFactor * float64(l.RetryPeriod.Duration)); l.RenewDeadline.Duration <= least {
		faults = append(faults, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline.Duration.String(), "must be longer than 1.2 times retryPeriod, "+least.String()))
	}
	if l.LeaseDuration.Duration <= l.RenewDeadline.Duration {
		faults = append(faults, field.Invalid(path.Child("leaseDuration"), l.LeaseDuration.Duration.String(), "must be longer than renewDeadline, "+l.RenewDeadline.Duration.String()))
	}
	return faults
}

// validateAddress accepts what net.Listen accepts, and "0" for off.
func validateAddress(address string, path *field.Path) field.ErrorList {
	if address == off {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if number, notNumber := strconv.Atoi(port); err != nil || notNumber != nil || number < 0 || number > 65535 {
		return field.ErrorList{field.Invalid(path, address, `must be host:port, :port, or "0" for off`)}
	}
	return nil
}

func validateHealth(h v1alpha1.Health, path *field.Path) field.ErrorList {
	faults := validateAddress(h.HealthProbeBindAddress, path.Child("healthProbeBindAddress"))
	if !strings.HasPrefix(h.ReadinessEndpointName, "/") {
		faults = append(faults, field.Invalid(path.Child("readinessEndpointName"), h.ReadinessEndpointName, "must begin with /"))
	}
	if !strings.HasPrefix(h.LivenessEndpointName, "/") {
		faults = append(faults, field.Invalid(path.Child("livenessEndpointName"), h.LivenessEndpointName, "must begin with /"))
	}
	if h.ReadinessEndpointName == h.LivenessEndpointName {
		faults = append(faults, field.Duplicate(path.Child("livenessEndpointName"), h.LivenessEndpointName))
	}
	return faults
}

func validateTLS(t *v1alpha1.TLS, path *field.Path) (faults field.ErrorList) {
	if t == nil {
		return nil
	}
	if !slices.Contains([]string{"", tls12, tls13}, t.MinVersion) {
		faults = append(faults, field.Invalid(path.Child("minVersion"), t.MinVersion, "invalid minVersion. Please use VersionTLS12 or VersionTLS13"))
	}
	if len(t.CipherSuites) > 0 && t.MinVersion == tls13 {
		faults = append(faults, field.Invalid(path.Child("cipherSuites"), t.CipherSuites, "cipher suites may not be specified when minVersion is 'VersionTLS13'"))
	}
	if _, err := cliflag.TLSCipherSuites(t.CipherSuites); err != nil {
		faults = append(faults, field.Invalid(path.Child("cipherSuites"), t.CipherSuites, err.Error()))
	}
	return faults
}

func validateCertManagement(m v1alpha1.InternalCertManagement, path *field.Path) (faults field.ErrorList) {
	if !*m.Enable {
		return nil
	}
	for _, message := range validation.IsDNS1035Label(*m.WebhookServiceName) {
		faults = append(faults, field.Invalid(path.Child("webhookServiceName"), *m.WebhookServiceName, message))
	}
	for _, message := range validation.IsDNS1123Subdomain(*m.WebhookSecretName) {
		faults = append(faults, field.Invalid(path.Child("webhookSecretName"), *m.WebhookSecretName, message))
	}
	return faults
}

func validateGangs(g *v1alpha1.GangSchedulingManagement, path *field.Path) field.ErrorList {
	provider := path.Child("schedulerProvider")
	switch {
	case g == nil:
		return nil
	case g.SchedulerProvider == nil || *g.SchedulerProvider == "":
		return field.ErrorList{field.Required(provider, "must be set when gang scheduling is enabled")}
	case gang.Named(*g.SchedulerProvider) == nil:
		return field.ErrorList{field.NotSupported(provider, *g.SchedulerProvider, gang.Names())}
	}
	return nil
}

func validateConnection(c v1alpha1.ClientConnection, path *field.Path) (faults field.ErrorList) {
	if *c.QPS <= 0 {
		faults = append(faults, field.Invalid(path.Child("qps"), *c.QPS, "must be greater than 0"))
	}
	if *c.Burst <= 0 {
		faults = append(faults, field.Invalid(path.Child("burst"), *c.Burst, "must be greater than 0"))
	}
	return faults
}
