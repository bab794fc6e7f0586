// Package budgetcache reads what limits evictions of a set: PodDisruptionBudgets, from the first set on that asks for one.
//
// It knows which budgets select a pod of a set, and why they cannot be read. It refuses to know what a budget should say.
package budgetcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Budgets reads PodDisruptionBudgets. The zero value reads them live, as a user does, who may lack the permission.
type Budgets struct {
	// ByDefault is set if sets without the annotation ask for one.
	ByDefault bool
	// Reader returns what reads them, or nil as long as no set wants one.
	Reader func(ctx context.Context, isWanted bool) (client.Reader, error)
}

// Of returns what limits evictions of a set, or nil where nothing is to be read. A set with the annotation may have a
// budget to delete, and a user sees by the budget of a set what the configuration of the operator asks for.
func (b Budgets) Of(ctx context.Context, cached, live client.Reader, set *lwsv1.LeaderWorkerSet) (_ *workload.Evictions, err error) {
	_, isWanted := set.Annotations[workload.DisruptionBudgetAnnotationKey]
	if b.Reader != nil {
		live, err = b.Reader(ctx, isWanted || b.ByDefault)
	}
	if live == nil || err != nil {
		return nil, err
	}
	return b.read(ctx, cached, live, set)
}

func (b Budgets) read(ctx context.Context, cached, from client.Reader, set *lwsv1.LeaderWorkerSet) (*workload.Evictions, error) {
	e := &workload.Evictions{Living: map[string]int32{}}
	var budgets policyv1.PodDisruptionBudgetList
	var pods corev1.PodList
	switch err := from.List(ctx, &budgets, client.InNamespace(set.Namespace)); {
	case apierrors.IsForbidden(err) && b.Reader == nil: // the operator may have the permission
		return nil, nil
	case apierrors.IsForbidden(err):
		e.Missing = "PodDisruptionBudgets cannot be read: give the operator the verbs get, list and watch of poddisruptionbudgets.policy"
	case err != nil:
		return nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	err := cached.List(ctx, &pods, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name}, client.DisableReadYourWritesConsistency)
	for i := range pods.Items {
		pod, leader := &pods.Items[i], pods.Items[i].Name
		if !workload.IsLeader(pod, set.Name) {
			leader = workload.ParentName(pod)
		}
		if pod.DeletionTimestamp == nil {
			e.Living[leader]++
		}
	}
	for i := range budgets.Items {
		budget := &budgets.Items[i]
		isNamed := budget.Name == workload.BudgetName(set)
		if isNamed {
			e.Budget = claimed(budget, set)
		}
		if (!isNamed || len(e.Budget.Foreign) > 0) && budget.DeletionTimestamp == nil && selectsAny(budget, set, pods.Items) {
			e.Others = append(e.Others, budget.Name)
		}
	}
	e.IsAsked = workload.LimitsEvictions(set, b.ByDefault || b.Reader == nil && e.Budget.Own() != nil)
	return e, err
}

// claimed classifies the budget of a set's name. Another set of that name, which is gone, owned it before.
func claimed(budget *policyv1.PodDisruptionBudget, set *lwsv1.LeaderWorkerSet) identity.Claim[*policyv1.PodDisruptionBudget] {
	lives := identity.Lives{}
	if owner := metav1.GetControllerOfNoCopy(budget); owner != nil && owner.Kind == string(identity.KindLeaderWorkerSet) && owner.Name == set.Name && owner.UID != set.UID {
		lives[owner.UID] = identity.Gone
	}
	return identity.Sort([]*policyv1.PodDisruptionBudget{budget}, identity.Claimant{set.UID}, func(budget *policyv1.PodDisruptionBudget) bool {
		return workload.BearsName(budget, set.Name) && budget.Labels[workload.ManagedByLabelKey] == workload.ManagedByValue
	}, lives)
}

// selectsAny reports whether a budget selects a pod. Memory keeps no labels of users on pods: the templates have them.
func selectsAny(budget *policyv1.PodDisruptionBudget, set *lwsv1.LeaderWorkerSet, pods []corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		template := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
		if workload.IsLeader(&pod, set.Name) {
			template = workload.WrittenForLeaders(set)
		}
		return selector.Matches(labels.Merge(template.Labels, pod.Labels))
	})
}

// Watch watches PodDisruptionBudgets from the first read on that wants one. It has a cache of its own: no probe waits for
// it, and the operator may lack the permission.
type Watch struct {
	Manager manager.Manager
	// Changed is called with each budget that is created or deleted, or changes in what sets go by. Failed is called with
	// failed lists and watches.
	Changed func(*policyv1.PodDisruptionBudget)
	Failed  toolscache.WatchErrorHandlerWithContext

	mu       sync.Mutex
	cache    cache.Cache
	informer cache.Informer
}

// Reader implements Budgets.Reader. Until the cache has all budgets, they are read live.
func (w *Watch) Reader(ctx context.Context, isWanted bool) (client.Reader, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cache == nil && isWanted {
		if err := w.begin(ctx); err != nil {
			return nil, err
		}
	}
	if w.cache != nil && !w.informer.HasSynced() {
		return w.Manager.GetAPIReader(), nil
	}
	return w.cache, nil
}

func (w *Watch) begin(ctx context.Context) error {
	all, err := cache.New(w.Manager.GetConfig(), cache.Options{
		HTTPClient: w.Manager.GetHTTPClient(), Scheme: w.Manager.GetScheme(), Mapper: w.Manager.GetRESTMapper(), DefaultWatchErrorHandler: w.Failed,
		DefaultUnsafeDisableDeepCopy: new(true), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	if w.informer, err = all.GetInformer(ctx, &policyv1.PodDisruptionBudget{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	_, err = w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: w.tell, DeleteFunc: w.tell, UpdateFunc: func(was, is any) {
		before, after := was.(*policyv1.PodDisruptionBudget), is.(*policyv1.PodDisruptionBudget) // most updates are counts of healthy pods
		if before.Generation != after.Generation || !maps.Equal(before.Labels, after.Labels) || len(before.Status.DisruptedPods) != len(after.Status.DisruptedPods) {
			w.tell(is)
		}
	}})
	w.cache = all
	return errors.Join(err, w.Manager.Add(all))
}

func (w *Watch) tell(object any) {
	if last, is := object.(toolscache.DeletedFinalStateUnknown); is {
		object = last.Obj
	}
	w.Changed(object.(*policyv1.PodDisruptionBudget))
}
