use tokengate_api::{IdentifyRequest, IdentifyResponse};

use super::Quota;
use crate::subject::Who;

impl Quota {
    /// Whether a caller is known, by the policy alone: the store is not asked, and nothing is counted against a limit.
    pub fn identify(&self, request: &IdentifyRequest) -> IdentifyResponse {
        let policy = self.policy();
        let known = Who::is_known(&policy, request);
        self.telemetry.metrics.identified(known);
        IdentifyResponse { known, policy_version: policy.version.clone() }
    }
}
