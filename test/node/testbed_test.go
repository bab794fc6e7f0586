//go:build linux

package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/delay"
	"lockstep.dev/lockstep/test/drill"
)

// testbed is a control plane with an operator and one real node.
type testbed struct {
	plane    *drill.Plane
	operator *drill.Operator
	node     *realNode
	rest     *rest.Config
	client   client.WithWatch
	audit    *drill.Audit
	scenes   int
	disks    int
}

// raise brings everything up and returns once the node takes pods.
func (b *testbed) raise(dir string, reaper *drill.Reaper) error {
	raised, err := drill.NewBed(dir, reaper, drill.Plane{Nodes: 1, QPS: 200})
	if err != nil {
		return err
	}
	b.plane, b.operator = raised.Plane, raised.Operator
	if b.node, err = newNode(filepath.Join(dir, "node")); err != nil {
		return err
	}
	if err := raised.Raise("node-test", drill.IsWrite); err != nil {
		return err
	}
	b.rest, b.client, b.audit = raised.Rest, raised.Client, raised.Audit
	return b.join()
}

// leave takes the node down. The rest is the reaper's.
func (b *testbed) leave() error {
	if b.node == nil || b.node.stage == nil {
		return nil
	}
	return b.node.stage.close()
}

// join has the node join: with a certificate of its own, as any other. The simulated node
// that the control plane comes up with takes no more pods.
func (b *testbed) join() error {
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	if err := b.closeSimulated(ctx); err != nil {
		return err
	}
	if err := b.client.Create(ctx, diskClass()); err != nil {
		return err
	}
	if err := b.identify(ctx); err != nil {
		return fmt.Errorf("get a certificate for the node: %w", err)
	}
	began := time.Now()
	if err := b.node.start(); err != nil {
		return err
	}
	if err := b.awaitNode(ctx); err != nil {
		return err
	}
	fmt.Printf("real node: ready %s after it was started\n", time.Since(began).Round(100*time.Millisecond))
	return nil
}

func (b *testbed) closeSimulated(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := b.client.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		closed := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`))
		if err := b.client.Patch(ctx, &nodes.Items[i], closed); err != nil {
			return err
		}
	}
	return nil
}

// awaitNode returns once the node is ready and bears no taint.
func (b *testbed) awaitNode(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		node := &corev1.Node{}
		last = b.client.Get(ctx, client.ObjectKey{Name: nodeName}, node)
		if last == nil && (!nodeReady(node) || len(node.Spec.Taints) > 0) {
			last = fmt.Errorf("conditions %+v, taints %+v", node.Status.Conditions, node.Spec.Taints)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the node does not get ready: %w\n%s", last, drill.LastLines(b.node.log("kubelet"), 30))
	}
	return nil
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// identify has the cluster sign who the node is, and writes the kubelet's kubeconfig.
func (b *testbed) identify(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	who := &x509.CertificateRequest{Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + nodeName}}
	asked, err := x509.CreateCertificateRequest(rand.Reader, who, key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	certificate, err := b.signed(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}))
	if err != nil {
		return err
	}
	node := rest.CopyConfig(b.rest)
	if err := rest.LoadTLSFiles(node); err != nil {
		return err
	}
	node.CertData, node.KeyData = certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(b.node.dir, "ca.crt"), node.CAData, 0o644); err != nil {
		return err
	}
	return delay.WriteKubeconfig(node, filepath.Join(b.node.dir, "kubeconfig"))
}

func (b *testbed) signed(ctx context.Context, request []byte) ([]byte, error) {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := b.client.Create(ctx, csr); err != nil {
		return nil, err
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Drill",
	}}
	if err := b.client.SubResource("approval").Update(ctx, csr); err != nil {
		return nil, err
	}
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(csr), csr)
		return len(csr.Status.Certificate) > 0, err
	})
	return csr.Status.Certificate, err
}

// diskStorage is the class of the node's disks: made by hand, and bound when a pod is
// scheduled.
const diskStorage = "disks"

func diskClass() *storagev1.StorageClass {
	late := storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: diskStorage}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late}
}

// addDisks makes n volumes on the node: half of them local ones, and half host paths. What
// is on them stays.
func (b *testbed) addDisks(ctx context.Context, n int) error {
	for range n {
		b.disks++
		name := b.lastDisk()
		if err := os.MkdirAll(b.node.disk(name), 0o777); err != nil {
			return err
		}
		if err := b.client.Create(ctx, b.newDisk(name, b.disks%2 == 0)); err != nil {
			return err
		}
	}
	return nil
}

// lastDisk is the name of the volume that was made last.
func (b *testbed) lastDisk() string { return fmt.Sprintf("disk-%03d", b.disks) }

func (b *testbed) newDisk(name string, local bool) *corev1.PersistentVolume {
	source := corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: b.node.disk(name)}}
	if local {
		source = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: b.node.disk(name)}}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: diskStorage, PersistentVolumeSource: source,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
			}}}},
		},
	}
}
