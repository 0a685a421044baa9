//! What an honest provider answers, and to whom.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kernel::base::{MINUTE_MS, SECOND_MS, sha256};
use reqwest::Url;
use serde_json::{Value, json};

use super::keys::{Draft, Key};
use super::wire::{Request, to_bytes};
use super::{AUTHORIZE, DISCOVERY, END_SESSION, Grant, JWKS, State, TOKEN, USERINFO, issuer};

struct Reply {
    status: u16,
    location: Option<String>,
    body: Value,
}

pub(super) fn answer(request: &Request, state: &State) -> Vec<u8> {
    let reply = match (request.method.as_str(), request.path.as_str()) {
        ("GET", DISCOVERY) => ok(discovery(state)),
        ("GET", JWKS) => ok(json!({"keys": state.dials().keys.iter().map(Key::jwk).collect::<Vec<_>>()})),
        ("GET", AUTHORIZE) => authorize(request, state).unwrap_or_else(|error| refusal(400, &error)),
        ("POST", TOKEN) => token(request, state).unwrap_or_else(|(status, error)| refusal(status, error)),
        ("GET" | "POST", USERINFO) => userinfo(request, state).unwrap_or_else(|| refusal(401, "invalid_token")),
        _ => refusal(404, "not_found"),
    };
    let Reply { status, location, mut body } = reply;
    let alter = state.dials().alter.get(&request.path).cloned();
    if let Some(alter) = alter.filter(|_| status == 200) {
        alter(&mut body);
    }
    let headers = location.map(|location| ("location", location));
    let headers: Vec<_> = headers.into_iter().chain([("content-type", "application/json".to_owned())]).collect();
    to_bytes(status, &headers, body.to_string().as_bytes())
}

fn ok(body: Value) -> Reply {
    Reply { status: 200, location: None, body }
}

fn refusal(status: u16, error: &str) -> Reply {
    Reply { status, location: None, body: json!({"error": error}) }
}

fn discovery(state: &State) -> Value {
    let at = |path: &str| issuer(state.address) + path;
    json!({
        "issuer": issuer(state.address),
        "authorization_endpoint": at(AUTHORIZE),
        "token_endpoint": at(TOKEN),
        "userinfo_endpoint": at(USERINFO),
        "end_session_endpoint": at(END_SESSION),
        "jwks_uri": at(JWKS),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    })
}

/// The pairs of a query or a form. What is said twice is wrong.
fn pairs(text: &str) -> Result<HashMap<String, String>, String> {
    let url = Url::parse(&format!("http://form/?{text}")).map_err(|error| error.to_string())?;
    let mut found = HashMap::new();
    for (name, value) in url.query_pairs() {
        if found.insert(name.to_string(), value.to_string()).is_some() {
            return Err(format!("{name} is said twice"));
        }
    }
    Ok(found)
}

fn authorize(request: &Request, state: &State) -> Result<Reply, String> {
    let mut query = pairs(&request.query)?;
    let mut take = |name: &str| query.remove(name).ok_or_else(|| format!("{name} is missing"));
    for (name, wanted) in [("response_type", "code"), ("code_challenge_method", "S256")] {
        let value = take(name)?;
        if value != wanted {
            return Err(format!("{name} is {value:?}"));
        }
    }
    let client_id = take("client_id")?;
    if !state.dials().clients.contains_key(&client_id) {
        return Err(format!("client_id is {client_id:?}"));
    }
    let (scope, redirect_uri, sent) = (take("scope")?, take("redirect_uri")?, take("state")?);
    let (challenge, nonce) = (take("code_challenge")?, take("nonce")?);
    if !["openid", "email", "profile"].iter().all(|wanted| scope.split(' ').any(|scope| scope == *wanted)) {
        return Err(format!("scope is {scope:?}"));
    }
    if [&challenge, &nonce, &sent].iter().any(|value| value.len() < 22) {
        return Err("code_challenge, nonce and state are hard to guess".to_owned());
    }
    let mut back = Url::parse(&redirect_uri).map_err(|error| error.to_string())?;
    let code = state.secret();
    back.query_pairs_mut()
        .append_pair("code", &code)
        .append_pair("state", &sent)
        .append_pair("iss", &issuer(state.address));
    let mut dials = state.dials();
    let person = dials.person.clone();
    dials.grants.insert(code, Grant { client_id, redirect_uri, challenge, nonce, person });
    Ok(Reply { status: 303, location: Some(back.to_string()), body: Value::Null })
}

fn token(request: &Request, state: &State) -> Result<Reply, (u16, &'static str)> {
    let malformed = |_| (400, "invalid_request");
    let form = pairs(&request.body).map_err(malformed)?;
    let said = |name: &str| form.get(name).map_or("", String::as_str);
    let kind = request.headers.get("content-type").map_or("", String::as_str);
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err((400, "invalid_request"));
    }
    let client_id = authenticate(request, &form, state)?;
    if said("grant_type") != "authorization_code" {
        return Err((400, "unsupported_grant_type"));
    }
    // A code is used up by whoever shows it.
    let grant = state.dials().grants.remove(said("code")).ok_or((400, "invalid_grant"))?;
    let verifier = said("code_verifier");
    let is_verified = URL_SAFE_NO_PAD.encode(sha256(verifier.as_bytes())) == grant.challenge;
    // It was given to one client, and is good for nobody else.
    if client_id != grant.client_id {
        return Err((400, "invalid_grant"));
    }
    if said("redirect_uri") != grant.redirect_uri || !is_verified || !(43..=128).contains(&verifier.len()) {
        return Err((400, "invalid_grant"));
    }
    let access_token = state.secret();
    let id_token = draft(&grant, state).signed();
    let mut dials = state.dials();
    dials.secrets.push(id_token.clone());
    dials.tokens.insert(access_token.clone(), grant.person);
    Ok(ok(json!({"access_token": access_token, "token_type": "Bearer", "expires_in": 300, "id_token": id_token})))
}

/// Who asks: by HTTP Basic, whose halves are encoded as in forms, or in the form; not by both.
fn authenticate(
    request: &Request,
    form: &HashMap<String, String>,
    state: &State,
) -> Result<String, (u16, &'static str)> {
    let refused = (401, "invalid_client");
    let basic = request.headers.get("authorization").and_then(|value| value.strip_prefix("Basic "));
    let (by, id, secret) = match (basic, form.get("client_secret")) {
        (Some(basic), None) => {
            let decoded = STANDARD.decode(basic).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(refused)?;
            let (id, secret) = decoded.split_once(':').ok_or(refused)?;
            let halves = pairs(&format!("id={id}&secret={secret}")).map_err(|_| refused)?;
            ("client_secret_basic", halves["id"].clone(), halves["secret"].clone())
        }
        (None, Some(secret)) => {
            ("client_secret_post", form.get("client_id").cloned().unwrap_or_default(), secret.clone())
        }
        _ => return Err(refused),
    };
    let mut dials = state.dials();
    dials.authenticated_by.push(by);
    if dials.clients.get(&id) == Some(&secret) { Ok(id) } else { Err(refused) }
}

fn draft(grant: &Grant, state: &State) -> Draft {
    let now = state.now_seconds();
    let mut claims = json!({
        "iss": issuer(state.address),
        "aud": grant.client_id,
        "exp": now + 5 * MINUTE_MS / SECOND_MS,
        "iat": now,
        "nonce": grant.nonce,
    });
    let (key, in_token, spoil) = {
        let dials = state.dials();
        (dials.keys.first().expect("a key").clone(), dials.in_token.clone(), dials.spoil.clone())
    };
    for (name, value) in grant.person.as_object().expect("claims") {
        if name == "sub" || in_token.as_ref().is_none_or(|told| told.contains(&name.as_str())) {
            claims[name] = value.clone();
        }
    }
    let mut draft = Draft::new(&key, claims);
    if let Some(spoil) = spoil {
        spoil(&mut draft);
    }
    draft
}

fn userinfo(request: &Request, state: &State) -> Option<Reply> {
    let token = request.headers.get("authorization")?.strip_prefix("Bearer ")?;
    state.dials().tokens.get(token).cloned().map(ok)
}
