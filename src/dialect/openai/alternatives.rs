//! Models that a request names beside the one it asks for: routers in front of providers let them answer instead.

use super::names::{ACTED_ON, ALTERNATIVES};
use super::request::bad;
use crate::dialect::BadRequest;
use crate::json::{Named, first_elements, meant, members, text};

/// In one list, and in all of them.
const MOST: usize = 8;
/// An object in a list is this long at most, in bytes.
const LONGEST: usize = 4 * 1024;

/// The names, as the client wrote them.
pub fn read(request: &Named<'_>) -> Result<Vec<String>, BadRequest> {
    let mut all = Vec::new();
    for list in ALTERNATIVES {
        let Some(member) = request.get(list).filter(|member| !member.is_null()) else { continue };
        let (entries, has_more) =
            first_elements(member.raw, MOST).ok_or_else(|| bad(list, "must be an array of model names"))?;
        for entry in entries {
            all.append(&mut names(entry, list)?);
        }
        if has_more || all.len() > MOST {
            return Err(bad(list, "names too many models: at most 8 may stand beside 'model'"));
        }
    }
    Ok(all)
}

/// Those of one entry: a name; an object with a `model`; or, but not in `models`, lists of names by the model
/// that they are for.
fn names(raw: &str, list: &'static str) -> Result<Vec<String>, BadRequest> {
    let unreadable = || bad(list, "must hold model names, or objects that have nothing but a 'model'");
    if let Some(name) = text(raw) {
        return Ok(vec![name]);
    }
    if raw.len() > LONGEST {
        return Err(unreadable());
    }
    let entry = members(raw).map_err(|_| unreadable())?;
    match entry.as_slice() {
        [only] if only.key == "model" => Ok(vec![text(only.raw).ok_or_else(unreadable)?]),
        // It would replace what was counted.
        all if all.iter().any(|member| meant(member.key.as_bytes(), ACTED_ON).is_some()) => Err(unreadable()),
        all => {
            let mut names = Vec::new();
            for member in all {
                let (of_one, has_more) = first_elements(member.raw, MOST).ok_or_else(unreadable)?;
                let of_one = of_one.into_iter().map(text).collect::<Option<Vec<_>>>();
                names.extend(of_one.filter(|_| !has_more).ok_or_else(unreadable)?);
            }
            Ok(names)
        }
    }
}

/// For a name that can be none.
pub fn no_such_alternative() -> BadRequest {
    let [models, fallbacks, ..] = ALTERNATIVES;
    bad(models, &format!("or '{fallbacks}' holds an empty name, or one that is too long: leave it out"))
}

/// Members that a gateway merges into what the provider gets: none of them may be one that was checked.
pub fn check_extra(raw: &str, name: &'static str) -> Result<(), BadRequest> {
    let named = crate::json::members_named(raw, &ACTED_ON).map_err(|_| bad(name, "must be an object"))?;
    let is_there = |name: &&str| named.get(name).is_some();
    match ACTED_ON.iter().copied().find(is_there).or(named.fault.map(crate::json::Fault::name)) {
        Some(inner) => {
            Err(bad(name, &format!("must not hold '{inner}': give it beside '{name}', not in it")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::json::members_named;

    fn names_of(members: &str) -> Result<Vec<String>, Option<&'static str>> {
        let text = format!("{{{members}}}");
        read(&members_named(&text, &ACTED_ON).unwrap()).map_err(|error| error.param)
    }

    #[test]
    fn every_way_to_name_another_model_is_read() {
        for (members, expected) in [
            ("", vec![]),
            (r#""models":null,"fallbacks":[]"#, vec![]),
            (r#""models":["a","\u0062"]"#, vec!["a", "b"]),
            (r#""fallbacks":["a",{"model":"b"}]"#, vec!["a", "b"]),
            (r#""fallbacks":[{"a":["b","c"]}],"models":["d"]"#, vec!["d", "b", "c"]),
            (r#""context_window_fallbacks":[{"a":["b"]}],"content_policy_fallbacks":["c"]"#, vec!["b", "c"]),
        ] {
            assert_eq!(names_of(members).unwrap(), expected, "{members}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let nine = [r#""a""#; 9].join(",");
        let five = [r#""a""#; 5].join(",");
        for (members, param) in [
            (r#""models":"a""#.to_owned(), "models"),
            (r#""models":{}"#.to_owned(), "models"),
            (r#""models":[1]"#.to_owned(), "models"),
            (r#""models":[null]"#.to_owned(), "models"),
            (r#""models":[["a"]]"#.to_owned(), "models"),
            (format!(r#""models":[{nine}]"#), "models"),
            (format!(r#""models":[{five}],"fallbacks":[{five}]"#), "fallbacks"),
            (format!(r#""fallbacks":[{{"x":[{nine}]}}]"#), "fallbacks"),
            (format!(r#""fallbacks":[{{"x":[{five}],"y":[{five}]}}]"#), "fallbacks"),
            (r#""fallbacks":[{"model":5}]"#.to_owned(), "fallbacks"),
            (r#""fallbacks":[{"model":"a","max_tokens":5}]"#.to_owned(), "fallbacks"),
            (r#""fallbacks":[{"model":"a","Messages":[]}]"#.to_owned(), "fallbacks"),
            (r#""fallbacks":[{"model":"a","model":"b"}]"#.to_owned(), "fallbacks"),
            (r#""fallbacks":[{"Model":"a"}]"#.to_owned(), "fallbacks"),
            (r#""fallbacks":[{"x":"a"}]"#.to_owned(), "fallbacks"),
            (r#""fallbacks":[{"x":[1]}]"#.to_owned(), "fallbacks"),
            (format!(r#""fallbacks":[{{"x":["{}"]}}]"#, "a".repeat(5_000)), "fallbacks"),
        ] {
            assert_eq!(names_of(&members), Err(Some(param)), "{members}");
        }
    }

    #[test]
    fn what_is_merged_must_not_hold_what_was_checked() {
        for raw in [
            r#"{"model":"o3"}"#,
            r#"{"a":1,"max_tokens":5}"#,
            r#"{"Stream":true}"#,
            r#"{"fallbacks":["o3"]}"#,
            "[]",
            "5",
        ] {
            assert_eq!(check_extra(raw, "extra_body").unwrap_err().param, Some("extra_body"), "{raw}");
        }
        assert_eq!(check_extra(r#"{"top_k":5,"x":{"model":"o3"}}"#, "extra_body"), Ok(()));
    }
}
