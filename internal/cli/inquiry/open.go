package inquiry

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/pvc"
)

// Inquirer reads a cluster to explain claims.
type Inquirer struct {
	reader client.Reader
	// Live reads the newest there is, and not what an API server has in its cache.
	Live bool
	// Brief reads what an overview needs, and no more.
	Brief bool
	// Now is the clock.
	Now func() time.Time
	// ServedAs finds kinds that are not built in, or is nil: then they are taken to be
	// served as they are described.
	ServedAs ServedAs
	// mapper is that of the reader, and learns how kinds are served.
	mapper *meta.DefaultRESTMapper
	// known are the kinds that are not built in, or nil until they are read.
	known *registry
}

// New returns an Inquirer that reads through reader.
func New(reader client.Reader) *Inquirer { return &Inquirer{reader: reader, Now: time.Now} }

// Open returns an Inquirer that cannot write.
func Open(config *rest.Config) (*Inquirer, error) {
	safe := lws.ReadOnly(config)
	safe.QPS = -1 // the API server knows best how much it can bear
	safe.WarningHandler = rest.NoWarnings{}
	mapper := newMapper()
	c, err := client.New(safe, client.Options{Scheme: lws.Scheme(), Mapper: mapper})
	if err != nil {
		return nil, err
	}
	server, err := discovery.NewDiscoveryClientForConfig(safe)
	if err != nil {
		return nil, err
	}
	i := New(c)
	i.mapper = mapper
	i.ServedAs = func(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return kinds.Served(ctx, server.RESTClient(), kind)
	}
	return i, nil
}

// Mapper knows the kinds that are read, without asking the API server for all that
// it has: who may read little may not ask, and a kind that is not there says so.
func Mapper() meta.RESTMapper { return newMapper() }

func newMapper() *meta.DefaultRESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		batchv1.SchemeGroupVersion.WithKind("Job"), batchv1.SchemeGroupVersion.WithKind("CronJob"),
		lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), pvc.JobSet.GroupVersionKind,
	} {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolume"), storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
	} {
		m.Add(kind, meta.RESTScopeRoot)
	}
	return m
}

// version is how new an answer has to be.
func (i *Inquirer) version() string {
	if i.Live {
		return ""
	}
	return "0"
}
