package operator

import (
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// coreMapper remembers under which resources the kinds of the core group are served,
// which every API server serves alike for as long as it lives. Of any other kind it
// knows nothing: those come and go. A write that reads back nothing but metadata asks
// with each of a thousand claims, and to find the answer among all groups cost more than
// to put the request together.
type coreMapper struct {
	meta.RESTMapper
	known sync.Map // *meta.RESTMapping by schema.GroupKind
}

func newMapper(config *rest.Config, over *http.Client) (meta.RESTMapper, error) {
	mapper, err := apiutil.NewDynamicRESTMapper(config, over)
	if err != nil {
		return nil, err
	}
	return &coreMapper{RESTMapper: mapper}, nil
}

// RESTMapping implements meta.RESTMapper.
func (m *coreMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if kind.Group != corev1.GroupName || len(versions) != 1 || versions[0] != corev1.SchemeGroupVersion.Version {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	if known, ok := m.known.Load(kind); ok {
		return known.(*meta.RESTMapping), nil
	}
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.known.Store(kind, mapping)
	}
	return mapping, err
}
