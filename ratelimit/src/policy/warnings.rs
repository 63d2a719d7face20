use std::collections::BTreeSet;
use std::fmt;

use tokengate_api::ModelInfo;

use super::estimate::{Assumed, default_output, estimate};
use super::{At, Count, Limit, Mode, OnStoreFailure, Plan, Policy, WhenTight};

/// Below this share a limit is hardly worth its name.
const LOW_UTILISATION: f64 = 0.5;
/// The longest window of which the utilisation is told: longer ones outlast their streams.
const SHORT_WINDOW_MS: u64 = 60_000;

/// What is allowed and hardly meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub at: At,
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let At { line, column } = self.at;
        write!(f, "{line}:{column}: {}", self.message)
    }
}

impl Policy {
    /// What is allowed and hardly meant, one line each, in the order of the file.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = self.of_models();
        for (name, plan) in &self.plans {
            self.of_plan(name, plan, &mut warnings);
        }
        for limit in &self.limits {
            self.of_limit(limit, &mut warnings);
        }
        warnings
    }

    fn of_models(&self) -> Vec<Warning> {
        let used: BTreeSet<usize> =
            self.plans.values().flat_map(|plan| plan.models.iter().copied()).collect();
        let placed = self.models.iter().zip(&self.model_places).enumerate();
        placed
            .filter(|(index, _)| !used.contains(index))
            .map(|(_, (model, at))| Warning {
                at: *at,
                message: format!("model `{}` is in no plan: nobody may use it", model.name),
            })
            .collect()
    }

    fn of_plan(&self, name: &str, plan: &Plan, warnings: &mut Vec<Warning>) {
        let mut warn = |message: String| warnings.push(Warning { at: plan.at, message });
        let limited = |limit: &&Limit| limit.enforces() && limit.amounts.by_plan.contains_key(name);
        if !self.limits.iter().any(|limit| limited(&limit)) {
            warn(format!("no enforcing limit applies to the plan `{name}`: it is not limited"));
        }
        if let WhenTight::Clamp { min_tokens } = plan.when_tight {
            for model in self.models_of(plan) {
                if model.max_output_tokens.is_some_and(|max| max < min_tokens) {
                    warn(format!(
                        "plan `{name}` never lowers an output limit of `{}`: its min_tokens ({min_tokens}) are above \
                         the model's max_output_tokens",
                        model.name
                    ));
                }
            }
        }
    }

    fn of_limit(&self, limit: &Limit, warnings: &mut Vec<Warning>) {
        let mut warn = |message: String| warnings.push(Warning { at: limit.at, message });
        let name = &limit.name;
        for (plan_name, plan) in &self.plans {
            let Some(amount) = limit.amounts.by_plan.get(plan_name) else { continue };
            for message in self.tight(limit, *amount, plan, &format!("plan `{plan_name}`")) {
                warn(message);
            }
            for model in self.models_of(plan).filter(|_| limit.count == Count::Cost) {
                let rates = limit.hold_rates(model, None, 1, 1);
                if !rates.by_tokens() {
                    warn(format!("limit `{name}` never limits `{}`, whose price is 0", model.name));
                }
            }
        }
        for (tenant, amount) in &limit.amounts.by_tenant {
            let plans = self.keys.plans_of(tenant, &self.plans);
            match amount {
                Some(0) => warn(format!("limit `{name}` admits nothing of the tenant `{tenant}`: it is 0")),
                Some(amount) => {
                    for plan in plans.into_iter().filter_map(|plan| self.plans.get(plan)) {
                        for message in self.tight(limit, *amount, plan, &format!("tenant `{tenant}`")) {
                            warn(message);
                        }
                    }
                }
                None => {}
            }
        }
        if limit.on_store_failure == OnStoreFailure::Open && limit.enforces() && self.is_void(limit) {
            warn(format!(
                "limit `{name}` is `on_store_failure: open` in vain: wherever it applies, a closed limit refuses \
                 while the store is away"
            ));
        }
    }

    /// What of a plan's requests a limit never admits, or hardly; only the worst model of each.
    fn tight(&self, limit: &Limit, amount: u64, plan: &Plan, whose: &str) -> Vec<String> {
        let name = &limit.name;
        let shown = limit.count.show_with_unit(amount);
        let hold = |model: &ModelInfo| {
            let output = default_output(model)?;
            Some(limit.hold_rates(model, None, 0, output).of_hold(0, output))
        };
        let models = || self.models_of(plan).filter_map(|model| Some((hold(model)?, model)));
        if let Some((hold, model)) =
            models().filter(|(hold, _)| amount > 0 && *hold > amount).max_by_key(|(hold, _)| *hold)
        {
            return vec![format!(
                "limit `{name}` ({shown} for {whose}) never admits a request to `{}` without an output limit, which \
                 holds {} and its prompt",
                model.name,
                limit.count.show_with_unit(hold)
            )];
        }
        if limit.shape.window_ms().is_none_or(|window_ms| window_ms > SHORT_WINDOW_MS) {
            return Vec::new();
        }
        let estimates = models().filter_map(|(_, model)| {
            let estimate = estimate(limit, amount, model, Assumed::default())?;
            let share = estimate.utilisation.filter(|share| *share < LOW_UTILISATION)?;
            Some((share, estimate.percent()?, model))
        });
        let worst = estimates.min_by(|(a, ..), (b, ..)| a.total_cmp(b));
        worst
            .map(|(_, percent, model)| {
                format!(
                    "limit `{name}` ({shown} for {whose}) can be used to about {percent} by requests to `{}` without \
                     an output limit: they hold much more than they use, and run long (check --explain)",
                    model.name
                )
            })
            .into_iter()
            .collect()
    }

    /// Wherever this open limit applies, an enforcing closed one does too.
    fn is_void(&self, limit: &Limit) -> bool {
        // Requests without a model, and tenants that it leaves out, are not refused by it.
        let everywhere = |other: &Limit| {
            (other.applies_without_model() || !limit.applies_without_model())
                && other.amounts.by_tenant.values().all(Option::is_some)
        };
        let closed = |other: &Limit| {
            other.mode == Mode::Enforce
                && other.on_store_failure == OnStoreFailure::Closed
                && everywhere(other)
        };
        let applies = |plan: &&String| limit.amounts.by_plan.contains_key(*plan);
        self.plans.keys().filter(applies).all(|plan| {
            self.limits.iter().any(|other| closed(other) && other.amounts.by_plan.contains_key(plan))
        })
    }

    pub(super) fn models_of<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = &'a ModelInfo> {
        plan.models.iter().filter_map(|index| self.models.get(*index))
    }
}
