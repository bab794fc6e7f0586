package check

import "context"

// policies finds admission policies and bindings that are missing, or that do not refuse what they
// should.
func policies(ctx context.Context, s *site, f *findings) error {
	wanted := s.ofKinds("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
	found := s.present(ctx, f, wanted)
	if s.ConfigRead { // parts of the configuration are in the policies
		s.compare(f, Warning, found)
	}
	if !f.hasFound() {
		f.ok("all %d policies and bindings exist", len(wanted))
	}
	return nil
}
