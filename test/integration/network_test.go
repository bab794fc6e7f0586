package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/internal/webhook"
	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

// attacked is an operator in a process of its own, whose ports a client without credentials reaches.
type attacked struct {
	*cluster
	process                    *process
	webhooks, metrics, healthy string // addresses
	rest                       int    // memory before the attacks, in bytes
}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	a := &attacked{cluster: newCluster(t)}
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", port(t)) }
	host, err := os.Hostname() // metrics on an address that is known to be loopback are open
	a.must(err)
	a.webhooks, a.metrics, a.healthy = address(), fmt.Sprintf("%s:%d", host, port(t)), address()
	a.install(func(o *install.Options) { o.WebhookURL = "https://" + a.webhooks })
	_, hooks, _ := net.SplitHostPort(a.webhooks)
	kubeconfig := filepath.Join(t.TempDir(), "operator.kubeconfig")
	a.must(delay.WriteKubeconfig(a.cfg, kubeconfig))
	program := expect.Value(drill.Program("lockstep"))(a.t)
	a.process = a.runProgram(nil, "operator", program, "run", "--kubeconfig", kubeconfig, "--leader-elect=false", "--zap-encoder=json",
		"--webhook-host=127.0.0.1", "--webhook-port="+hooks, "--health-probe-bind-address="+a.healthy,
		"--metrics-bind-address="+a.metrics)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(drill.LastLines(a.process.log, 20))
		}
	})
	a.eventually("the operator is ready", func() error {
		code, text := get(a.healthy + "/readyz")
		return errors.Join(drill.Lacking("answer "+text, http.StatusOK, code), a.Create(t.Context(), newSet("default", "probe"), client.DryRunAll))
	})
	a.rest, _ = a.memory()
	return a
}

// TestStrangersOnTheNetwork attacks the ports of an operator as a client without credentials can.
func TestStrangersOnTheNetwork(t *testing.T) {
	a := newAttacked(t)
	a.part("requests that fill memory", a.fillMemory)
	a.part("connections that fill memory", a.holdConnections)
	a.part("large sets", a.storeLargeSets)
	a.part("clients that send nothing more", a.stall)
	a.part("handshakes that fail", a.failHandshakes)
	a.part("tokens that are guessed", a.guessTokens)
}

// memory returns the memory of the operator, and the most that it has had, in bytes.
func (a *attacked) memory() (now, peak int) {
	a.t.Helper()
	p := expect.Value(procfs.NewProc(a.process.cmd.Process.Pid))(a.t)
	status := expect.Value(p.NewStatus())(a.t)
	return int(status.VmRSS), int(status.VmHWM)
}

// insecure is a client that takes every certificate, with a connection for each request.
func insecure(own ...tls.Certificate) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true, Certificates: own}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
}

// connect opens a connection, over TLS unless it is plain, and sends a text until a deadline.
func connect(address string, plain bool, within time.Duration, text string) (net.Conn, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	_ = connection.SetDeadline(time.Now().Add(within))
	if !plain {
		connection = tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
	}
	_, _ = io.WriteString(connection, text)
	return connection, nil
}

// ask sends a request and reads the answer.
func ask(
	ctx context.Context, client *http.Client, method, url, header, body string,
) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	name, value, _ := strings.Cut(header, ": ")
	r.Header.Set(name, value)
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error(), err
	}
	defer func() { _ = answer.Body.Close() }()
	whole, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(whole), err
}

// ofJSON is the header of a review.
const ofJSON = "Content-Type: application/json"

// reviewOf returns an AdmissionReview of a set with more in its pod template.
func reviewOf(more string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{"apiVersion":"leaderworkerset.x-k8s.io/v1",` +
		`"kind":"LeaderWorkerSet","metadata":{"name":"a","namespace":"default"},"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{` + more + `}}}}}}}`
}

// fillMemory sends 32 requests at once, again and again: the largest that are refused, and the costliest that are let
// through. Sets are admitted meanwhile.
func (a *attacked) fillMemory() {
	numbered := func(form string, n int) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = strings.ReplaceAll(form, "%d", fmt.Sprint(i))
		}
		return strings.Join(parts, ",")
	}
	containers := reviewOf(`"containers":[` + numbered(`{"name":"c%d","image":"a-registry.example.com/an/image:v1"}`, 100000) + `]`)
	bodies := []string{
		containers + strings.Repeat(" ", max(0, 7<<20-len(containers))),
		reviewOf(`"containers":[` + numbered(`{}`, 28000) + `]`),
		reviewOf(`"containers":[{"name":"c","resources":{"limits":{` + numbered(`"%d":1`, 150000) + `}}}]`),
		reviewOf(`"containers":[{"name":"c","args":["` + strings.Repeat("x", 4<<20) + `"]}]`),
		reviewOf(`"containers":[{"name":"c","resources":{"limits":{` + numbered(`"%d":1`, 5000) + `}}}]`),
	}
	ctx, stop := context.WithCancel(a.t.Context())
	var clients sync.WaitGroup
	var answers sync.Map
	for i := range 32 {
		clients.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				kind := n % len(bodies)
				url := "https://" + a.webhooks + webhook.PathMutateSet
				status, _, err := ask(ctx, insecure(), http.MethodPost, url, ofJSON, bodies[kind])
				if err != nil && status == 0 {
					continue // the server closes the connection while the client still sends
				}
				count, _ := answers.LoadOrStore([2]int{kind, status}, new(atomic.Int64))
				count.(*atomic.Int64).Add(1)
			}
		})
	}
	var slowest time.Duration
	admitted := 0
	for began := time.Now(); time.Since(began) < 10*time.Second || admitted < 5; {
		asked := time.Now()
		if err := a.Create(ctx, newSet("default", fmt.Sprintf("beside-%d", admitted)), client.DryRunAll); err != nil {
			a.t.Errorf("a set was refused after %s: %v", time.Since(asked), err)
			break
		}
		admitted, slowest = admitted+1, max(slowest, time.Since(asked))
	}
	stop()
	clients.Wait()
	answers.Range(func(key, count any) bool {
		a.t.Logf("request %d: %d answers with status %d", key.([2]int)[0], count.(*atomic.Int64).Load(), key.([2]int)[1])
		return true
	})
	count, ok := answers.Load([2]int{0, http.StatusRequestEntityTooLarge})
	expect.That(a.t, ok && count.(*atomic.Int64).Load() != 0, "no request of 7 MiB was answered with 413")
	_, most := a.memory()
	a.t.Logf("%d sets were admitted, the slowest in %s; memory rose from %d to %d MiB", admitted, slowest, a.rest>>20, most>>20)
	expect.That(a.t, most-a.rest <= 256<<20, "memory rose by %d MiB, to %d MiB", (most-a.rest)>>20, most>>20)
}

// holdConnections opens more connections than the webhooks take, each with as much of a body as is always read, and as many
// to the probes, where the kubelet is still answered.
func (a *attacked) holdConnections() {
	text := "POST " + webhook.PathMutateSet + " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 65000\r\n\r\n" + strings.Repeat(" ", 64900)
	var clients sync.WaitGroup
	dialers := make(chan struct{}, 50)
	most := a.rest
	rises := func() {
		now, _ := a.memory()
		most = max(most, now)
	}
	for i := range 2100 {
		dialers <- struct{}{}
		clients.Go(func() {
			address, sent := a.webhooks, text
			if i%2 != 0 {
				address, sent = a.healthy, "GET /healthz HTTP/1.1\r\nX: "+strings.Repeat("x", 15000)
			}
			connection, err := connect(address, i%2 != 0, 12*time.Second, sent)
			<-dialers
			if err == nil {
				_, _ = io.Copy(io.Discard, connection)
				_ = connection.Close()
			}
		})
		if i%50 == 0 {
			rises()
		}
	}
	if code, text := get(a.healthy + "/healthz"); code != http.StatusOK {
		a.t.Errorf("a probe: %d %s", code, text)
	}
	rises()
	clients.Wait()
	a.t.Logf("memory rose from %d to %d MiB", a.rest>>20, most>>20)
	expect.That(a.t, most-a.rest <= 256<<20, "memory rose by %d MiB", (most-a.rest)>>20)
	a.until("sets are admitted again", func() bool {
		return a.Create(a.t.Context(), newSet("default", "beside"), client.DryRunAll) == nil
	})
}

// storeLargeSets writes sets through the API server: one that etcd just takes is admitted, with its old object, and one of
// far too many containers is refused with a text that says so.
func (a *attacked) storeLargeSets() {
	large := newSet("default", "large")
	large.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Args = []string{strings.Repeat("x", 1450<<10)}
	a.create(large)
	large.Spec.Replicas = new(int32(0))
	a.must(a.Update(a.t.Context(), large))
	a.must(a.Delete(a.t.Context(), large))
	crowded := newSet("default", "crowded")
	for i := range 32000 {
		containers := &crowded.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers
		*containers = append(*containers, corev1.Container{Name: fmt.Sprintf("c%d", i)})
	}
	expect.ErrorSays(a.t, a.Create(a.t.Context(), crowded), "too many containers")
}

// stall opens connections that send a part of what the server waits for. All are closed within 30 s.
func (a *attacked) stall() {
	hooks := "POST " + webhook.PathMutateSet + " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
	var clients sync.WaitGroup
	for _, c := range []struct {
		name, address string
		number        int
		plain         bool
		text          string
	}{
		{"a body", a.webhooks, 300, false, hooks + "Content-Length: 1000\r\n\r\n{"},
		{"a chunk", a.webhooks, 20, false, hooks + "Transfer-Encoding: chunked\r\n\r\n5\r\n{"},
		{"a body for no handler", a.webhooks, 20, false, "POST /nothing HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{"},
		{"a header", a.webhooks, 20, false, hooks + "X: "},
		{"nothing", a.webhooks, 20, false, ""},
		{"a handshake", a.webhooks, 20, true, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		{"a body of metrics", a.metrics, 20, false, "POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{"},
		{"a header of metrics", a.metrics, 20, false, "GET /metrics HTTP/1.1\r\nX: "},
		{"a handshake of metrics", a.metrics, 20, true, "\x16\x03\x01"},
		{"a body of a probe", a.healthy, 20, true, "POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{"},
		{"an answered probe", a.healthy, 20, true, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"a header of a probe", a.healthy, 20, true, "GET /healthz HTTP/1.1\r\nX: "},
	} {
		for range c.number {
			clients.Go(func() {
				connection, err := connect(c.address, c.plain, 30*time.Second, c.text)
				if err != nil {
					a.t.Errorf("%s: %v", c.name, err)
					return
				}
				defer func() { _ = connection.Close() }()
				if c.text == "" {
					_ = connection.(*tls.Conn).HandshakeContext(a.t.Context())
				}
				if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
					a.t.Errorf("%s holds its connection for 30 s", c.name)
				}
			})
		}
	}
	asked := time.Now()
	a.must(a.Create(a.t.Context(), newSet("default", "beside"), client.DryRunAll))
	a.t.Logf("a set was admitted in %s", time.Since(asked))
	clients.Wait()
	a.t.Logf("the last connection was closed after %s", time.Since(asked))
}

// failHandshakes makes handshakes fail in many ways. The log has a line of them, and a metric the number.
func (a *attacked) failHandshakes() {
	suites := func(ids ...uint16) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: ids}
	}
	for _, address := range []string{a.webhooks, a.metrics} {
		for name, c := range map[string]struct {
			config *tls.Config
			taken  bool
		}{
			"TLS 1.3": {&tls.Config{InsecureSkipVerify: true}, true},
			"GCM":     {suites(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256), true},
			"TLS 1.1": {&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
			"CBC":     {suites(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA), false},
		} {
			connection, err := tls.Dial("tcp", address, c.config)
			if err == nil {
				_ = connection.Close()
			}
			expect.That(a.t, (err == nil) == c.taken, "%s on %s: %v", name, address, err)
		}
	}
	for range 200 {
		connection := expect.Value(connect(a.webhooks, true, patience, "no handshake\n"))(a.t)
		_, _ = io.Copy(io.Discard, connection)
		_ = connection.Close()
	}
	log := expect.Value(os.ReadFile(a.process.log))(a.t)
	lines := 0
	for scanner := bufio.NewScanner(bytes.NewReader(log)); scanner.Scan(); {
		line := map[string]any{}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			a.t.Errorf("a line that is no JSON: %q", scanner.Text())
		}
		if line["msg"] == "TLS handshakes failed" && line["server"] == "webhooks" {
			lines++
		}
	}
	if lines < 1 || lines > 3 { // of a minute, which may end meanwhile
		a.t.Errorf("%d lines of failed handshakes", lines)
	}
	code, text := a.scrape(a.reader())
	if code != http.StatusOK || !strings.Contains(text, `lockstep_tls_handshakes_failed_total{server="webhooks"} 2`) {
		a.t.Errorf("the metrics of %d do not count them", code)
	}
}

// reader returns a token that may read metrics.
func (a *attacked) reader() string {
	a.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "prometheus-", Namespace: "default"}}
	a.create(account)
	a.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "prometheus-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lws-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	})
	token := &authenticationv1.TokenRequest{}
	a.must(a.SubResource("token").Create(a.t.Context(), account, token))
	a.until("the account may read metrics", func() bool {
		code, _ := a.scrape(token.Status.Token)
		return code == http.StatusOK
	})
	return token.Status.Token
}

func (a *attacked) scrape(token string) (int, string) {
	bearer := "Authorization: Bearer " + token
	status, text, _ := ask(a.t.Context(), insecure(), http.MethodGet, "https://"+a.metrics+"/metrics", bearer, "")
	return status, text
}

// guessTokens asks for metrics with random tokens. The API server reviews few of them, and a reader still reads.
func (a *attacked) guessTokens() {
	reader := a.reader()
	before, began := a.tokenReviews(), time.Now()
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			for n := range 50 {
				if code, text := a.scrape(fmt.Sprintf("guess-%d-%d", i, n)); code != http.StatusUnauthorized && code != http.StatusTooManyRequests {
					a.t.Errorf("a guess: %d %s", code, text)
				}
			}
		})
	}
	for range 5 {
		code, text := a.scrape(reader)
		expect.That(a.t, code == http.StatusOK, "a reader in the storm: %d %.200s", code, text)
	}
	clients.Wait()
	took := time.Since(began)
	reviews := a.tokenReviews() - before
	a.t.Logf("%d reviews of 1000 guesses in %s", reviews, took)
	if most := 5 + 20 + 6*int(took.Seconds()+1); reviews > most {
		a.t.Errorf("the API server reviewed %d tokens in %s, at most %d are expected", reviews, took, most)
	}
}

// tokenReviews returns how many the API server has answered.
func (a *attacked) tokenReviews() (n int) {
	a.t.Helper()
	for line := range strings.Lines(a.serverMetrics()) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="tokenreviews"`) {
			count := 0.0
			_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &count)
			a.must(err)
			n += int(count)
		}
	}
	return n
}

// serverMetrics returns the metrics of the API server.
func (c *cluster) serverMetrics() string {
	c.t.Helper()
	text := expect.Value(c.clientset(c.cfg).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(c.t.Context()))(c.t)
	return string(text)
}

// TestReviewsDelayNoController: a client without credentials makes the webhook ask the API server as often as it may. The
// controllers have a rate limiter of their own, and do not wait for reviews.
func TestReviewsDelayNoController(t *testing.T) {
	c := newCluster(t)
	r := c.replica(func(o *operator.Options) {
		o.Config.ClientConnection.QPS, o.Config.ClientConnection.Burst = new(float32(5)), new(int32(5))
	})
	c.install(r.called)
	r.start().untilReady()
	set := c.createSet("w")
	statefulSet := func() (sts appsv1.StatefulSet) {
		c.until("the leader StatefulSet is there", func() bool {
			return c.Get(c.t.Context(), client.ObjectKeyFromObject(set), &sts) == nil && sts.DeletionTimestamp == nil
		})
		return sts
	}
	review := reviewOf(`"containers":[{"name":"c","image":"i"}]`)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answers, unchecked atomic.Int64
	for range 20 {
		clients.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) { // the machine has other work
				_, text, err := ask(ctx, insecure(), http.MethodPost, r.webhookURL()+webhook.PathValidateSet, ofJSON, review)
				if err != nil {
					continue
				}
				answers.Add(1)
				if strings.Contains(text, "rate limiter") {
					unchecked.Add(1)
				}
			}
		})
	}
	c.until("the webhook waits for its rate limiter", func() bool { return unchecked.Load() > 20 })
	var slowest time.Duration
	for range 5 {
		was, began := statefulSet(), time.Now()
		c.must(c.Delete(ctx, &was))
		for statefulSet().UID == was.UID {
			time.Sleep(10 * time.Millisecond)
		}
		slowest = max(slowest, time.Since(began))
		time.Sleep(time.Second) // so that the limiter of the controllers is not what they wait for
	}
	stop()
	clients.Wait()
	t.Logf("beside %d reviews, %d of them not checked, a StatefulSet was replaced in %s at most", answers.Load(), unchecked.Load(), slowest)
	if slowest > 3*time.Second { // half a dozen requests, of 5 a second
		t.Errorf("a StatefulSet was replaced after %s", slowest)
	}
}

// TestClientCertificate runs an API server that presents a certificate to the webhooks, which take no other client.
func TestClientCertificate(t *testing.T) {
	certificate, key, presented := clientCertificate(t, "api-server")
	_, _, other := clientCertificate(t, "api-server")
	hooks := port(t)
	dir := t.TempDir()
	users := clientcmdapi.NewConfig()
	users.AuthInfos[fmt.Sprintf("127.0.0.1:%d", hooks)] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	expect.OK(t, clientcmd.WriteToFile(*users, filepath.Join(dir, "webhooks.kubeconfig")))
	admission := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		admission += fmt.Sprintf("- name: %s\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n"+
			"    kubeConfigFile: %s/webhooks.kubeconfig\n", plugin, dir)
	}
	expect.OK(t, os.WriteFile(filepath.Join(dir, "admission.yaml"), []byte(admission), 0o600))

	c := newClusterWith(t, map[string]string{"admission-control-config-file": filepath.Join(dir, "admission.yaml")})
	r := c.replica(func(o *operator.Options) {
		o.Config.Webhook.Port, o.Config.Webhook.ClientCA = new(int32(hooks)), string(certificate)
	})
	c.install(r.called)
	r.start().untilReady() // the API server has created a set by then
	for name, certificates := range map[string][]tls.Certificate{
		"no certificate":                     nil,
		"a certificate of another authority": {other},
		"the certificate it is asked for":    {presented},
	} {
		url := r.webhookURL() + webhook.PathMutateSet
		_, _, err := ask(t.Context(), insecure(certificates...), http.MethodPost, url, ofJSON, reviewOf(""))
		expect.Equalf(t, strings.HasPrefix(name, "the certificate"), err == nil, "%s is taken: %v", name, err)
	}
}

// clientCertificate returns a certificate of a client, which is its own authority, and its key.
func clientCertificate(t *testing.T, name string) (certificate, key []byte, pair tls.Certificate) {
	t.Helper()
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	expect.OK(t, err)
	private := expect.Value(keyutil.ParsePrivateKeyPEM(key))(t)
	signed := expect.Value(cert.NewSelfSignedCACert(cert.Config{CommonName: name}, private.(crypto.Signer)))(t)
	certificate, err = cert.EncodeCertificates(signed)
	expect.OK(t, err)
	pair, err = tls.X509KeyPair(certificate, key)
	expect.OK(t, err)
	return certificate, key, pair
}
