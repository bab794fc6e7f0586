package bundle

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// tokenSeconds is how long the token lives that reads metrics: the least that the API server grants.
const tokenSeconds int64 = 600

// readMetrics reads the metrics of an operator's pod through a forwarded port, as the account that may do
// nothing else. The API server's own proxy passes no credentials on.
func (c *collector) readMetrics(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	port, err := metricsPort(pod)
	if err != nil {
		return nil, err
	}
	account := strings.Replace(pod.Spec.ServiceAccountName, "controller-manager", "metrics-reader", 1)
	token, err := c.kube.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(tokenSeconds)}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of ServiceAccount %s: %w", account, err)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	local, err := c.forward(ctx, pod, port)
	if err != nil {
		return nil, fmt.Errorf("forward port %d: %w", port, err)
	}
	return scrape(ctx, fmt.Sprintf("https://127.0.0.1:%d/metrics", local), token.Status.Token)
}

// metricsPort returns the port of a pod with the name "metrics".
func metricsPort(pod *corev1.Pod) (int32, error) {
	for i := range pod.Spec.Containers {
		ports := pod.Spec.Containers[i].Ports
		if at := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" }); at >= 0 {
			return ports[at].ContainerPort, nil
		}
	}
	return 0, fmt.Errorf("the pod has no port with the name %q", "metrics")
}

// forward forwards a port of a pod to one of this machine, until ctx ends.
func (c *collector) forward(ctx context.Context, pod *corev1.Pod, port int32) (local uint16, err error) {
	url := c.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return 0, err
	}
	sockets, err := portforward.NewSPDYOverWebsocketDialer(url, c.Config)
	if err != nil {
		return 0, err
	}
	streams := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	dialer := portforward.NewFallbackDialer(sockets, streams, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)},
		ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return 0, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return 0, errors.Join(errors.New("the tunnel ended"), err)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	ports, _ := forwarder.GetPorts() // it is ready
	return ports[0].Local, nil
}

// scrape reads metrics. The API server vouches for the pod at the other end of the tunnel: the operator
// makes the certificate of this port itself.
func scrape(ctx context.Context, url, token string) ([]byte, error) {
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) // the URL is ours
	request.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, metricsBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.256s", response.Status, strings.TrimSpace(string(text)))
	}
	return text, err
}
