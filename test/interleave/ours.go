package interleave

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/act"
	"lockstep.dev/lockstep/internal/controller/finalize"
	"lockstep.dev/lockstep/internal/observe"
	"lockstep.dev/lockstep/internal/protect"
)

// ours is one life of the finalizing controller.
type ours struct {
	caches *caches
	watch  *podWatch
	crash  context.CancelFunc
}

func (w *world) startOurs() {
	ctx, cancel := context.WithCancel(w.ctx)
	o := &ours{
		caches: &caches{claims: newInformer(&w.store.claimLog, w.store.claims), hideP: w.rules.ignoresP},
		watch:  &podWatch{store: w.store, events: make(chan watch.Event, 1000)},
		crash:  cancel,
	}
	api := &apiServer{world: w, from: "ours"}
	pods := observe.NewPods()
	controller := finalize.New(finalize.Options{
		Settings: protect.Settings{Mode: protect.Barrier, Alone: !w.rules.builtIn},
		Caches:   o.caches, Claims: observe.NewClaims(o.caches, api), Pods: pods,
		Looker: func(told func(observe.Reading)) *observe.Looker { return observe.NewLooker(pods, api, time.Now, told) },
		Actor:  act.New(api, api), Recorder: silent{}, Clock: clock.RealClock{}, Log: logr.Discard(),
	})
	w.ours = o
	go pods.Run(ctx, podClient{o.watch})
	go func() { _ = controller.Start(ctx) }()
}

type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// podClient is how the controller's watch of pods reads.
type podClient struct{ *podWatch }

// podWatch is the one watch of pods.
type podWatch struct {
	corev1client.PodInterface // what is not asked for
	store                     *store
	at                        int
	events                    chan watch.Event
}

// IsWatchListSemanticsUnSupported has the watch begin with a list.
func (podClient) IsWatchListSemanticsUnSupported() bool { return true }

func (p podClient) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	p.at = len(p.store.podLog)
	return p.store.podsNow(), nil
}

func (p podClient) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return p.podWatch, nil
}

// Stop implements watch.Interface.
func (p *podWatch) Stop() {}

// ResultChan implements watch.Interface.
func (p *podWatch) ResultChan() <-chan watch.Event { return p.events }

func (p *podWatch) behind() bool { return p.at < len(p.store.podLog) }

func (p *podWatch) deliver() {
	event := p.store.podLog[p.at]
	p.at++
	p.events <- watch.Event{Type: event.Type, Object: event.Object.DeepCopyObject()}
}

// apiServer is how the controller reaches the store: over the wire.
type apiServer struct {
	client.Client // what is not asked for
	world         *world
	from          string
	// pretends that there are no pods: to ask how far they are has failed.
	pretends bool
}

// beyond is a version that no watch reaches: pods have to be listed.
const beyond = "1000000"

func (a *apiServer) send(ctx context.Context, says string, writes bool, run func() error) error {
	return a.world.wire.send(ctx, &call{from: a.from, says: says, writes: writes, run: run})
}

func (a *apiServer) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	claim, ok := into.(*corev1.PersistentVolumeClaim)
	if !ok {
		return fmt.Errorf("nobody reads %T live", into)
	}
	return a.send(ctx, "read claim "+key.Name, false, func() error {
		now := a.world.store.claims[key.Name]
		if now == nil {
			return apierrors.NewNotFound(claimResource, key.Name)
		}
		*claim = *now.DeepCopy()
		return nil
	})
}

func (a *apiServer) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	rules := a.world.rules
	says := "list pods"
	if list, probes := into.(*metav1.PartialObjectMetadataList); probes {
		says, list.ResourceVersion = "ask how far pods are", beyond
	} else if a.pretends {
		a.pretends = false
		return nil
	}
	err := a.send(ctx, says, false, func() error {
		now := a.world.read()
		switch into := into.(type) {
		case *metav1.PartialObjectMetadataList:
			into.ResourceVersion = now.ResourceVersion
			if rules.byCache {
				into.ResourceVersion = "1"
			}
		case *corev1.PodList:
			now.DeepCopyInto(into)
		default:
			return fmt.Errorf("nobody lists %T live", into)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil && rules.errorsMeanNone {
		a.pretends = true
		return nil
	}
	return err
}

// patched is what the controller's patches are made of.
type patched struct {
	Metadata struct {
		UID             types.UID
		ResourceVersion string
		Finalizers      *[]string
		Annotations     map[string]*string
	}
}

func (a *apiServer) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var p patched
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	onto := judged{p.Metadata.UID, p.Metadata.ResourceVersion}
	if onto.uid == "" || onto.version == "" {
		return fmt.Errorf("a write without preconditions: %s", data)
	}
	if a.world.rules.anyVersion {
		onto = judged{}
	}
	return a.send(ctx, fmt.Sprintf("write %s: %s", object.GetName(), data), true, func() error {
		return a.world.store.writeClaim(object.GetName(), onto, func(claim *corev1.PersistentVolumeClaim) { p.apply(claim, a.world.rules.ignoresP) })
	})
}

func (p patched) apply(claim *corev1.PersistentVolumeClaim, leaveP bool) {
	if p.Metadata.Finalizers != nil {
		had := claim.Finalizers
		claim.Finalizers = *p.Metadata.Finalizers
		if leaveP && slices.ContainsFunc(had, isP) {
			claim.Finalizers = append(claim.Finalizers, protect.PodsFinalizer)
		}
	}
	for key, value := range p.Metadata.Annotations {
		if value == nil {
			delete(claim.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, *value)
	}
}
