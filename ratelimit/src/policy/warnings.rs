use tokengate_api::{Metric, ModelInfo};

use super::{DEFAULT_OUTPUT_TOKENS, Policy};

impl Policy {
    /// What is allowed and hardly meant, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, model) in self.models.iter().enumerate() {
            if !self.plans.values().any(|plan| plan.models.contains(&index)) {
                warnings.push(format!("model `{}` is in no plan: nobody may use it", model.name));
            }
        }
        for limit in self.limits.iter().filter(|limit| limit.count == Metric::Tokens) {
            for (name, plan) in &self.plans {
                let Some(amount) = limit.amount.of(name) else { continue };
                let models = plan.models.iter().filter_map(|index| self.models.get(*index));
                if let Some(model) = models
                    .filter(|model| default_hold(model) > amount)
                    .max_by_key(|model| default_hold(model))
                {
                    warnings.push(format!(
                        "limit `{}` ({amount} for plan `{name}`) never admits a request to `{}` without an output \
                         limit, which holds {} tokens and its prompt",
                        limit.name,
                        model.name,
                        default_hold(model)
                    ));
                }
            }
        }
        warnings
    }
}

fn default_hold(model: &ModelInfo) -> u64 {
    let default = model.default_output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    default.min(model.max_output_tokens.unwrap_or(u64::MAX))
}
