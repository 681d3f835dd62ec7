
# --- From here on the same for every group ---

$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Set-StrictMode -Version 2
$here = $PSScriptRoot
if (-not $Workspace) {
    # A short path: the files of PyTorch's source reach the 260 characters that Windows allows.
    $Workspace = Join-Path $env:SystemDrive "\fb\$($Group.Name)"
}

function Stop-Build([string]$Text) {
    Write-Host "error: $Text" -ForegroundColor Red
    exit 1
}

# Runs a program, and stops the build if it fails.
function Invoke-Checked([string]$Program, [string[]]$Arguments) {
    Write-Host "> $Program $($Arguments -join ' ')"
    & $Program @Arguments | Out-Host # not into the value of the function that calls this one
    if ($LASTEXITCODE -ne 0) {
        Stop-Build "$Program ended with exit code $LASTEXITCODE."
    }
}

function Test-Older([string]$One, [string]$Other) {
    return ([version]$One) -lt ([version]$Other)
}

# The newest MSVC toolset that the CUDA toolkit accepts, and the Visual Studio that has it.
function Find-Msvc {
    $vswhere = "${env:ProgramFiles(x86)}\Microsoft Visual Studio\Installer\vswhere.exe"
    if (-not (Test-Path -LiteralPath $vswhere)) {
        Stop-Build 'Visual Studio is not installed. Install Visual Studio 2019 or newer, or its Build Tools, with the C++ workload.'
    }
    $best = $null
    foreach ($folder in @(& $vswhere -products '*' -property installationPath)) {
        $tools = Join-Path $folder 'VC\Tools\MSVC'
        if (-not (Test-Path -LiteralPath $tools)) {
            continue
        }
        foreach ($toolset in @(Get-ChildItem -LiteralPath $tools -Directory)) {
            $version = $toolset.Name
            if (Test-Older $version '14.20') {
                continue
            }
            if ($Group.ToolsetBelow -and -not (Test-Older $version $Group.ToolsetBelow)) {
                continue
            }
            if (($null -eq $best) -or (Test-Older $best.Version $version)) {
                $best = @{ Version = $version; Batch = (Join-Path $folder 'VC\Auxiliary\Build\vcvars64.bat') }
            }
        }
    }
    if ($null -eq $best) {
        $limit = ''
        if ($Group.ToolsetBelow) {
            $limit = " older than $($Group.ToolsetBelow), because the CUDA toolkit refuses newer ones"
        }
        Stop-Build "No MSVC toolset from 14.20 on$limit is installed. Add one with the Visual Studio Installer."
    }
    return $best
}

# Takes over the environment that vcvars64.bat makes for this toolset.
function Enter-Msvc($Msvc) {
    $short = ($Msvc.Version -split '\.')[0..1] -join '.'
    $lines = & "$env:SystemRoot\System32\cmd.exe" /d /c "`"$($Msvc.Batch)`" -vcvars_ver=$short >nul 2>&1 && set"
    if ($LASTEXITCODE -ne 0) {
        Stop-Build "vcvars64.bat failed for the MSVC toolset $($Msvc.Version)."
    }
    foreach ($line in $lines) {
        $at = $line.IndexOf('=')
        if ($at -gt 0) {
            Set-Item -LiteralPath "Env:$($line.Substring(0, $at))" -Value $line.Substring($at + 1)
        }
    }
    Write-Host "MSVC toolset $($Msvc.Version)"
}

function Find-Cuda([string]$Version) {
    $folder = Join-Path $env:ProgramFiles "NVIDIA GPU Computing Toolkit\CUDA\v$Version"
    if (-not (Test-Path -LiteralPath (Join-Path $folder 'bin\nvcc.exe'))) {
        Stop-Build "The CUDA toolkit $Version is not installed in $folder."
    }
    return $folder
}

function Find-Python {
    if ($Python) {
        return $Python
    }
    foreach ($known in $Group.Interpreters) {
        if (Test-Path -LiteralPath $known) {
            return $known
        }
    }
    Stop-Build "Python $($Group.PythonVersion) was not found. Name it: build.ps1 -Python C:\path\python.exe"
}

# Replaces the placeholders of recipes by paths. CMake wants forward slashes.
function Expand-Placeholders([string]$Text, [hashtable]$Places) {
    foreach ($name in $Places.Keys) {
        $Text = $Text.Replace($name, $Places[$name].Replace('\', '/'))
    }
    return $Text
}

function Get-Source($Wheel, [string]$Folder) {
    if ($Wheel.Git) {
        $arguments = @('-c', 'core.autocrlf=false', '-c', 'core.longpaths=true', 'clone', '--depth', '1', '--branch', $Wheel.Ref)
        if ($Wheel.Submodules) {
            $arguments += @('--recurse-submodules', '--shallow-submodules')
        }
        Invoke-Checked 'git' ($arguments + @($Wheel.Git, $Folder))
    } else {
        $downloads = "$Folder-sdist"
        Invoke-Checked $script:interpreter @('-m', 'pip', 'download', '--no-deps', '--no-binary', ':all:', '--dest', $downloads, $Wheel.Requirement)
        $null = New-Item -ItemType Directory -Force -Path $Folder
        $archive = @(Get-ChildItem -LiteralPath $downloads -File)[0].FullName
        Invoke-Checked 'tar' @('-xf', $archive, '-C', $Folder, '--strip-components', '1')
    }
    foreach ($patch in $Wheel.Patches) {
        Invoke-Checked 'git' @('-C', $Folder, 'apply', '--unidiff-zero', '--ignore-whitespace', (Join-Path $here "$($Wheel.Package)\patches\$patch"))
    }
}

function Copy-Libraries($Wheel, [string]$Source, [hashtable]$Places) {
    foreach ($folder in $Wheel.Bundled.Keys) {
        $target = Join-Path $Source $folder
        $null = New-Item -ItemType Directory -Force -Path $target
        foreach ($pattern in $Wheel.Bundled[$folder]) {
            $found = @(Get-ChildItem -Path (Expand-Placeholders $pattern $Places) -ErrorAction SilentlyContinue)
            if ($found.Count -eq 0) {
                Write-Host "warning: no file matches $pattern, so the wheel does not bring it." -ForegroundColor Yellow
            }
            foreach ($library in $found) {
                Copy-Item -LiteralPath $library.FullName -Destination $target -Force
            }
        }
    }
}

# Builds one wheel in an environment of its own, and returns the path of the wheel.
function Build-Wheel($Wheel) {
    Write-Host "`n=== $($Wheel.Package) $($Wheel.WheelVersion) ===" -ForegroundColor Cyan
    $work = Join-Path $Workspace $Wheel.Package
    if (Test-Path -LiteralPath $work) {
        Remove-Item -LiteralPath $work -Recurse -Force
    }
    $null = New-Item -ItemType Directory -Force -Path $work
    $venv = Join-Path $work 'venv'
    Invoke-Checked (Find-Python) @('-m', 'venv', $venv)
    $script:interpreter = Join-Path $venv 'Scripts\python.exe'
    $requirements = @('pip', 'setuptools', 'wheel') + @($Wheel.BuildRequirements)
    if ($Wheel.BuildRequirements -match '^setuptools') {
        $requirements = @('pip', 'wheel') + @($Wheel.BuildRequirements)
    }
    Invoke-Checked $interpreter (@('-m', 'pip', 'install', '--upgrade') + $requirements)
    $built = @(Get-ChildItem -Path (Join-Path $dist '*.whl') -ErrorAction SilentlyContinue | ForEach-Object { $_.FullName })
    if ($built.Count -gt 0) {
        Invoke-Checked $interpreter (@('-m', 'pip', 'install') + $built)
    }
    $source = Join-Path $work 'src'
    Get-Source $Wheel $source

    $places = @{ '@venv@' = $venv; '@files@' = (Join-Path $here "$($Wheel.Package)\files"); '@cuda@' = '' }
    if ($Wheel.Cuda) {
        $places['@cuda@'] = Find-Cuda $Wheel.Cuda
        $env:PATH = "$($places['@cuda@'])\bin;$env:PATH"
    }
    foreach ($name in $Wheel.Environment.Keys) {
        Set-Item -LiteralPath "Env:$name" -Value (Expand-Placeholders $Wheel.Environment[$name] $places)
    }
    $env:PATH = "$venv\Scripts;$env:PATH"
    if ($Jobs -gt 0) {
        $env:MAX_JOBS = "$Jobs"
        $env:CMAKE_BUILD_PARALLEL_LEVEL = "$Jobs"
    }
    Copy-Libraries $Wheel $source $places

    $arguments = @('-m', 'pip', 'wheel', '--verbose', '--no-deps', '--wheel-dir', (Join-Path $work 'dist'))
    if (@($Wheel.BuildRequirements).Count -gt 0) {
        $arguments += '--no-build-isolation' # the recipe lists all of them, and they are installed
    }
    foreach ($setting in $Wheel.Settings.Keys) {
        $arguments += @('--config-settings', "$setting=$(Expand-Placeholders $Wheel.Settings[$setting] $places)")
    }
    Invoke-Checked $interpreter ($arguments + @($source))
    $file = @(Get-ChildItem -Path (Join-Path $work 'dist\*.whl'))[0]
    Copy-Item -LiteralPath $file.FullName -Destination $dist -Force
    return (Join-Path $dist $file.Name)
}

# Installs all wheels in a new environment, and runs the checks of the recipes there.
function Test-Wheels([string[]]$Files) {
    Write-Host "`n=== Checks ===" -ForegroundColor Cyan
    $venv = Join-Path $Workspace 'check'
    if (Test-Path -LiteralPath $venv) {
        Remove-Item -LiteralPath $venv -Recurse -Force
    }
    Invoke-Checked (Find-Python) @('-m', 'venv', $venv)
    $program = Join-Path $venv 'Scripts\python.exe'
    Invoke-Checked $program (@('-m', 'pip', 'install') + $Files)
    foreach ($wheel in $Wheels) {
        foreach ($name in $wheel.Imports) {
            Invoke-Checked $program @('-c', "import $name")
        }
        foreach ($check in $wheel.Checks) {
            Invoke-Checked $program @((Join-Path $here "$($wheel.Package)\checks\$check"))
        }
    }
}

if (-not [Environment]::Is64BitProcess) {
    Stop-Build 'This PowerShell is a 32-bit process. Start the 64-bit one.'
}
foreach ($sentence in $Group.ToSupply) {
    Write-Host "note: $sentence" -ForegroundColor Yellow
}
$dist = Join-Path $here 'dist'
$null = New-Item -ItemType Directory -Force -Path $dist
$script:interpreter = ''
Enter-Msvc (Find-Msvc)
$clean = @{}
foreach ($variable in Get-ChildItem Env:) {
    $clean[$variable.Name] = $variable.Value
}
$files = @()
foreach ($wheel in $Wheels) {
    $files += @(Build-Wheel $wheel)[-1]
    # The next wheel starts from the same environment.
    foreach ($variable in @(Get-ChildItem Env:)) {
        if ($clean.ContainsKey($variable.Name)) {
            Set-Item -LiteralPath "Env:$($variable.Name)" -Value $clean[$variable.Name]
        } else {
            Remove-Item -LiteralPath "Env:$($variable.Name)"
        }
    }
}
Test-Wheels $files
Write-Host "`nBuilt and checked:" -ForegroundColor Green
$files | ForEach-Object { Write-Host "  $_" }
