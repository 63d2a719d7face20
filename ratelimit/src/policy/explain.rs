//! What a policy comes to, for people: `check --explain`.

use std::fmt::Write as _;

use tokengate_api::{MissingOutputLimit, ModelInfo};

use super::estimate::{Assumed, Estimate, default_output, estimate};
use super::{Limit, Policy, Shape};

impl Policy {
    /// For each plan and each of its models: the limits that apply, what a request without an output limit holds,
    /// how many of them fit, and how much of the limit can be used. `*` marks the limit that is met first.
    pub fn explain(&self, assumed: Assumed) -> String {
        let mut text = String::new();
        for (plan_name, plan) in &self.plans {
            for model in self.models_of(plan) {
                let _ = writeln!(text, "plan `{plan_name}`, model `{}`", model.name);
                let _ = writeln!(text, "  {}", the_request(model, assumed));
                self.limits_of(plan_name, model, assumed, &mut text);
            }
        }
        text
    }

    fn limits_of(&self, plan: &str, model: &ModelInfo, assumed: Assumed, text: &mut String) {
        let limits: Vec<_> = self
            .limits
            .iter()
            .filter_map(|limit| {
                let amount = *limit.amounts.by_plan.get(plan)?;
                Some((limit, amount, estimate(limit, amount, model, assumed)))
            })
            .collect();
        let rate = |estimate: &Option<Estimate>| estimate.and_then(|estimate| estimate.per_minute);
        let enforcing = limits.iter().filter(|(limit, ..)| limit.enforces());
        let tightest = enforcing
            .filter_map(|(limit, _, estimate)| Some((rate(estimate)?, limit.name.as_str())))
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, name)| name);
        if limits.is_empty() {
            let _ = writeln!(text, "    no limit applies");
        }
        for (limit, amount, estimate) in limits {
            let mark = if tightest == Some(limit.name.as_str()) { '*' } else { ' ' };
            let shadow = if limit.enforces() { "" } else { " (shadow)" };
            let amount = match limit.shape {
                Shape::Balance => "what was granted".to_owned(),
                _ => limit.count.show_with_unit(amount),
            };
            let _ = writeln!(text, "  {mark} {}{shadow}: {amount}; {}", limit.name, limit.describe());
            if let Some(estimate) =
                estimate.map(|estimate| the_estimate(limit, &estimate)).filter(|e| !e.is_empty())
            {
                let _ = writeln!(text, "      {estimate}");
            }
            if let Some(prices) = limit.prices(model).filter(|prices| !prices.tiers.is_empty()) {
                let tiers: Vec<_> = prices.tiers.keys().map(String::as_str).collect();
                let _ = writeln!(
                    text,
                    "      other prices by tier: {}; a request that names none holds by the dearest",
                    tiers.join(", ")
                );
            }
            for (tenant, amount) in &limit.amounts.by_tenant {
                if self.keys.plans_of(tenant, &self.plans).contains(&plan.to_owned()) {
                    let amount = amount.map(|amount| limit.count.show_with_unit(amount));
                    let amount = amount.unwrap_or_else(|| "unlimited".to_owned());
                    let _ = writeln!(text, "      tenant `{tenant}`: {amount}");
                }
            }
        }
    }
}

fn the_request(model: &ModelInfo, assumed: Assumed) -> String {
    let Some(output) = default_output(model) else {
        return "a request without an output limit is refused".to_owned();
    };
    let how = match model.output_limit.missing {
        MissingOutputLimit::WriteDefault => ", which is written into the request",
        MissingOutputLimit::HoldMax => ", the most the model can produce",
        MissingOutputLimit::HoldDefault | MissingOutputLimit::Refuse => "",
    };
    let used = assumed.output_of(output);
    let seconds = used / assumed.tokens_per_second.max(1);
    format!(
        "without an output limit holds its prompt and {output} output tokens{how}; taken to be {} + {used} used in {seconds} s",
        assumed.prompt_tokens
    )
}

fn the_estimate(limit: &Limit, estimate: &Estimate) -> String {
    let mut parts = Vec::new();
    if limit.count.by_usage() {
        parts.push(format!("holds {}", limit.count.show_with_unit(estimate.hold)));
        match estimate.fit {
            _ if limit.shape == Shape::Balance => {}
            0 => parts.push("never fits".to_owned()),
            fit => parts.push(format!("{fit} fit at once")),
        }
    }
    if let Some(percent) = estimate.percent() {
        parts.push(format!("{percent} of it can be used"));
    }
    if let Some(per_minute) = estimate.per_minute.filter(|_| estimate.fit > 0) {
        let decimals = usize::from(per_minute < 10.0);
        parts.push(format!("about {per_minute:.decimals$} requests a minute"));
    }
    parts.join(", ")
}
