package operator

import (
	"crypto/tls"
	"net"

	cliflag "k8s.io/component-base/cli/flag"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/scrape"
)

const (
	tls12 = "VersionTLS12"
	tls13 = "VersionTLS13"
)

// tlsOptions restrict a TLS server to what the configuration allows. HTTP/2 is off: a client
// can make one connection cost far more than it sends.
func tlsOptions(c *v1alpha1.TLS) ([]func(*tls.Config), error) {
	options := []func(*tls.Config){func(t *tls.Config) { t.NextProtos = []string{"http/1.1"} }}
	if c == nil {
		return options, nil
	}
	if c.MinVersion != "" {
		version, err := cliflag.TLSVersion(c.MinVersion)
		if err != nil {
			return nil, err
		}
		options = append(options, func(t *tls.Config) { t.MinVersion = version })
	}
	if len(c.CipherSuites) > 0 {
		suites, err := cliflag.TLSCipherSuites(c.CipherSuites)
		if err != nil {
			return nil, err
		}
		options = append(options, func(t *tls.Config) { t.CipherSuites = suites })
	}
	return options, nil
}

// metricsOptions serve metrics to all clients on a loopback address, and over HTTPS to
// authorised clients on any other.
func metricsOptions(address string, secured []func(*tls.Config)) metricsserver.Options {
	if address == off || onLoopback(address) {
		return metricsserver.Options{BindAddress: address}
	}
	return metricsserver.Options{
		BindAddress:    address,
		SecureServing:  true,
		FilterProvider: scrape.Readers,
		TLSOpts:        secured,
	}
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
