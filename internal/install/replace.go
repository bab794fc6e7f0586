package install

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"

	"lockstep.dev/lockstep/internal/operator"
)

// lacking are the kinds of admission policies that the API server does not know.
func (o Options) lacking() ([]string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(o.REST)
	if err != nil {
		return nil, err
	}
	return operator.Lacks(client)
}

// replace takes away what was there before and is not wanted any more: policies of
// another version or configuration, an installation of protection by itself that
// this one comprises, protection that was switched off.
func (s shape) replace(ctx context.Context, a applier, wanted []*unstructured.Unstructured) error {
	s.tellOfLacks()
	if err := s.forgetConfiguration(ctx, a); err != nil {
		return err
	}
	if !s.protects {
		return s.unprotect(ctx, a)
	}
	if err := s.dropStale(ctx, a, wanted); err != nil || s.ProtectOnly {
		return err
	}
	return s.dropStandalone(ctx, a)
}

func (s shape) tellOfLacks() {
	if s.protects && slices.Contains(s.lacks, operator.ValidatingPolicy) {
		s.say("the API server has no ValidatingAdmissionPolicy (Kubernetes 1.30): modes observe and hold neither refuse nor warn; barrier works")
	}
	if s.protects && s.isOlder() {
		s.say("the API server has no MutatingAdmissionPolicy (Kubernetes 1.36): the operator adds the barrier after a PVC is created, and mode strict works as hold")
	}
}

// unprotect switches protection off in an installation that stays.
func (s shape) unprotect(ctx context.Context, a applier) error {
	u, err := s.unprotection(ctx, a)
	if err != nil || len(u.found) == 0 {
		return err
	}
	return u.run(ctx, func() error {
		if s.Image == "" {
			return nil
		}
		return s.awaitPods(ctx, a, s.namespace(), s.mark())
	})
}

// dropStandalone removes what protection by itself had, once the whole has it.
func (s shape) dropStandalone(ctx context.Context, a applier) error {
	isAlone, err := s.installed(ctx, a, standalone["lws-proxy-role"])
	if err != nil || !isAlone {
		return err
	}
	doomed, err := s.doomed(ctx, a, []bool{alone})
	for _, u := range doomed {
		err = errors.Join(err, s.remove(ctx, a, u))
	}
	return err
}
