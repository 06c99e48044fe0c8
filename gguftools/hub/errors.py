"""What the Hub's refusals mean, and what to do about them."""

from __future__ import annotations

from ..errors import GGUFToolsError, HubError, InputError, NotFound

_LOGIN = "accept its terms on its page, then run: hf auth login"


def explain(error: Exception, is_network: bool, repo: str, file: str) -> GGUFToolsError | None:
    """Our error for one of huggingface_hub's or (`is_network`) of its HTTP client; None for any other."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if "GatedRepoError" in kinds or status == 403:
        return HubError(f"{repo} is gated", "its owner grants access to logged-in people who asked", _LOGIN)
    if "EntryNotFoundError" in kinds and "LocalEntryNotFoundError" not in kinds:
        return NotFound(f"{repo} has no file {file}", "the Hub does not know it", "check the spelling")
    if "RevisionNotFoundError" in kinds:
        return NotFound(f"{repo} has no such revision", "the Hub does not know it", "leave out the @ part")
    if "RepositoryNotFoundError" in kinds or status in (401, 404):
        why = "it does not exist, or it is private and you are not logged in"
        return NotFound(f"{repo}: not found on the Hub", why, "check the spelling; if private: hf auth login")
    if status == 429:
        seconds = response.headers.get("Retry-After") if response is not None else None
        hint = f"run again in {seconds} seconds" if seconds else "run again in a few minutes"
        return HubError("the Hub asks for a pause", "too many requests", hint)
    if status is not None:
        return HubError(f"{repo}: the Hub failed", f"it answered {status}", "try again later")
    if is_network or kinds & {"OfflineModeIsEnabled", "LocalEntryNotFoundError"}:
        why = f"no answer from the Hub ({type(error).__name__})"
        hint = "check the network; run and chat take what is cached with --offline"
        return HubError(f"{repo}: cannot be reached", why, hint)
    if "HFValidationError" in kinds:
        return InputError(f"{repo}: not a repo's name", str(error).splitlines()[0], "write it as org/repo")
    return None
